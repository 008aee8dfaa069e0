// A device without memory or kernels: everything is sized and recorded, nothing runs. Plans for hardware that
// is not here are made on it.
#pragma once

#include "hal/registry.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::null {

hal::BackendEntry null_backend();
// Those of the GPU backends, under the name "null".
void add_null_variants(kernels::Catalog& catalog);

}  // namespace meshloom::backends::null
