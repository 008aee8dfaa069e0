// The variants that only Vulkan has: for CPUs, and for matrix units.
#pragma once

#include "kernels/core/catalog.h"

namespace meshloom::backends::vulkan {

void add_matmul_lane_block(kernels::Catalog& catalog);
void add_matmul_cooperative(kernels::Catalog& catalog);
void add_int8_matmul_cooperative(kernels::Catalog& catalog);
void add_flash_attention_cooperative(kernels::Catalog& catalog);

}  // namespace meshloom::backends::vulkan
