// The attention variants of the CPU.
#include "backends/cpu/kernels/entries.h"

namespace meshloom::backends::cpu {

std::vector<Kernel> flash_attention_kernels() { return {}; }
void add_flash_attention_variants(kernels::Catalog&) {}

}  // namespace meshloom::backends::cpu
