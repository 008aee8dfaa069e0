// The kernels of the CPU backend by family, and the variants that use them: one pair of functions per family,
// each defined beside its kernels. kernel_table.cpp and variants.cpp join them.
#pragma once

#include <vector>

#include "backends/cpu/kernel.h"
#include "kernels/catalog.h"

namespace meshloom::backends::cpu {

std::vector<Kernel> matmul_kernels();
void add_matmul_variants(kernels::Catalog& catalog);
std::vector<Kernel> flash_attention_kernels();
void add_flash_attention_variants(kernels::Catalog& catalog);

}  // namespace meshloom::backends::cpu
