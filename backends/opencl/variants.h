// The variants that only OpenCL has: those of one vendor's matrix unit.
#pragma once

#include "kernels/core/catalog.h"

namespace meshloom::backends::opencl {

void add_matmul_ptx_mma(kernels::Catalog& catalog);

}  // namespace meshloom::backends::opencl
