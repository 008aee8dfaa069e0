// The variants that only OpenCL has: for CPUs, and for the matrix unit of NVIDIA's GPUs.
#pragma once

#include "kernels/core/catalog.h"

namespace meshloom::backends::opencl {

void add_matmul_vec16(kernels::Catalog& catalog);
void add_matmul_ptx_mma(kernels::Catalog& catalog);
void add_flash_attention_vec16(kernels::Catalog& catalog);

}  // namespace meshloom::backends::opencl
