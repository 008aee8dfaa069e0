// A device without memory or kernels: everything is sized and recorded, nothing runs. Plans for hardware that is not
// present are made on it. It stands for a device of another backend, and has the limits and features of that one's driver
// (hal/driver.h), so that the same variants fit:
//   null          Vulkan, or the processor's own backend while it runs as a profile of the kind host
//   null:BACKEND  that backend, with the driver of the profile that it runs as
//   null:DRIVER   that driver of hal/drivers/, such as null:lavapipe
//   null:FILE     the device that `meshloom devices --describe` wrote to this file
#pragma once

#include "hal/registry.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::null {

hal::BackendEntry null_backend();
// It has none of its own.
void add_null_variants(kernels::Catalog& catalog);

}  // namespace meshloom::backends::null
