// The only file that knows which backends were built.
#include "backends/cpu/backend.h"
#include "backends/null/backend.h"
#ifdef MESHLOOM_HAS_OPENCL
#include "backends/opencl/backend.h"
#endif
#ifdef MESHLOOM_HAS_VULKAN
#include "backends/vulkan/backend.h"
#endif

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "kernels/core/self_test.h"

namespace meshloom {

void register_backends(hal::Registry& registry, kernels::Catalog& catalog) {
  registry.add(backends::cpu::cpu_backend());
  backends::cpu::add_cpu_variants(catalog);
#ifdef MESHLOOM_HAS_OPENCL
  registry.add(backends::opencl::opencl_backend());
  backends::opencl::add_opencl_variants(catalog);
#endif
#ifdef MESHLOOM_HAS_VULKAN
  registry.add(backends::vulkan::vulkan_backend());
  backends::vulkan::add_vulkan_variants(catalog);
#endif
  registry.add(backends::null::null_backend());
  backends::null::add_null_variants(catalog);
  const auto self_test = std::make_shared<kernels::SelfTest>(hal::DiskCache::from_environment());
  registry.when_opened([self_test, &catalog](hal::Device& device) {
    for (const kernels::SelfTestFailure& item : self_test->run(device, catalog))
      fmt::print(stderr, "{} ({}, {}): {} failed its self-test and is not used: {}\n", device.info().id,
                 device.info().name, device.info().driver, item.variant, item.found);
  });
}

}  // namespace meshloom
