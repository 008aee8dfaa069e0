// The OpenCL backend: devices with any conformant OpenCL 1.2 or later.
#pragma once

#include "hal/registry.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::opencl {

hal::BackendEntry opencl_backend();
void add_opencl_variants(kernels::Catalog& catalog);

}  // namespace meshloom::backends::opencl
