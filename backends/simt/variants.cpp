#include "backends/simt/variants.h"

namespace meshloom::backends::simt {

void add_simt_variants(kernels::Catalog& catalog, const std::string& backend) {
  add_simt_small_op_variants(catalog, backend);
  add_simt_matmul_variants(catalog, backend);
  add_simt_flash_attention_variants(catalog, backend);
}

}  // namespace meshloom::backends::simt
