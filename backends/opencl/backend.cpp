#include "backends/opencl/backend.h"

#include "backends/opencl/device/device.h"
#include "backends/opencl/device/drivers.h"
#include "backends/opencl/device/enumerate.h"
#include "backends/opencl/device/fused_probe.h"
#include "backends/opencl/inspect/families.h"

namespace meshloom::backends::opencl {

hal::BackendEntry opencl_backend() {
  hal::BackendEntry entry;
  entry.name = "opencl";
  entry.drivers = drivers;
  entry.use_only = use_only;
  entry.enumerate = [](std::string& why_none) {
    std::vector<hal::DeviceInfo> infos;
    for (PhysicalDevice& found : enumerate_devices(why_none)) infos.push_back(std::move(found.info));
    return infos;
  };
  entry.open = [](int index) -> std::unique_ptr<hal::Device> {
    std::string why_none;
    std::vector<PhysicalDevice> found = enumerate_devices(why_none);
    if (index < 0 || index >= static_cast<int>(found.size()))
      throw hal::Error("opencl:" + std::to_string(index), "must be a device that is there",
                       found.empty() ? why_none : std::to_string(found.size()) + " devices");
    auto device = std::make_unique<ClDevice>(std::move(found[static_cast<std::size_t>(index)]));
    if (!device->info().is_cpu)
      device->add_self_test_result(hal::kFusedLaunches, fused_launch_problem(*device));
    return device;
  };
  entry.families = families();
  entry.open_family = open_family;
  return entry;
}

}  // namespace meshloom::backends::opencl
