// The Vulkan backend: compute on any Vulkan 1.2 device with buffer device addresses.
#pragma once

#include "hal/registry.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::vulkan {

hal::BackendEntry vulkan_backend();
void add_vulkan_variants(kernels::Catalog& catalog);

}  // namespace meshloom::backends::vulkan
