#include "backends/cpu/backend.h"
#include "backends/cpu/kernels/entries.h"

namespace meshloom::backends::cpu {

void add_cpu_variants(kernels::Catalog& catalog) {
  add_matmul_variants(catalog);
  add_flash_attention_variants(catalog);
}

}  // namespace meshloom::backends::cpu
