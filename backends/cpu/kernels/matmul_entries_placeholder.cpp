// Empty families, until their kernels are here.
#include "backends/cpu/kernels/entries.h"

namespace meshloom::backends::cpu {

std::vector<Kernel> matmul_kernels() { return {}; }
void add_matmul_variants(kernels::Catalog&) {}
std::vector<Kernel> flash_attention_kernels() { return {}; }
void add_flash_attention_variants(kernels::Catalog&) {}

}  // namespace meshloom::backends::cpu
