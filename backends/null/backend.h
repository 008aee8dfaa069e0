// A device without memory or kernels: everything is sized and recorded, nothing runs. Plans for hardware that is not
// present are made on it.
#pragma once

#include "hal/registry.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::null {

hal::BackendEntry null_backend();
// The variants that OpenCL and Vulkan share, under the name "null".
void add_null_variants(kernels::Catalog& catalog);

}  // namespace meshloom::backends::null
