// The only file that knows which backends were built.
#include "hal/registry.h"
#include "kernels/catalog.h"
#ifdef MESHLOOM_HAS_OPENCL
#include "backends/opencl/backend.h"
#endif
#ifdef MESHLOOM_HAS_VULKAN
#include "backends/vulkan/backend.h"
#endif

namespace meshloom {

void register_backends(hal::Registry& registry, kernels::Catalog& catalog) {
#ifdef MESHLOOM_HAS_OPENCL
  registry.add(backends::opencl::opencl_backend());
  backends::opencl::add_opencl_variants(catalog);
#endif
#ifdef MESHLOOM_HAS_VULKAN
  registry.add(backends::vulkan::vulkan_backend());
  backends::vulkan::add_vulkan_variants(catalog);
#endif
  (void)registry;
  (void)catalog;
}

}  // namespace meshloom
