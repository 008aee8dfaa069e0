#include "backends/vulkan/backend.h"

#include <memory>
#include <mutex>

#include "backends/vulkan/device/device.h"
#include "backends/vulkan/device/drivers.h"
#include "backends/vulkan/device/enumerate.h"
#include "backends/vulkan/device/instance.h"
#include "backends/vulkan/inspect/compiling_device.h"

namespace meshloom::backends::vulkan {
namespace {

// Created when devices are first enumerated; shared by the backend and its devices.
class LazyInstance {
 public:
  std::shared_ptr<Instance> get() {
    std::lock_guard lock(mutex_);
    if (!instance_) instance_ = std::make_shared<Instance>();
    return instance_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Instance> instance_;
};

}  // namespace

hal::BackendEntry vulkan_backend() {
  const auto instance = std::make_shared<LazyInstance>();
  hal::BackendEntry entry;
  entry.name = "vulkan";
  entry.drivers = drivers;
  entry.use_only = use_only;
  entry.enumerate = [instance](std::string& why_none) {
    std::vector<hal::DeviceInfo> infos;
    try {
      for (PhysicalDevice& found : enumerate_devices(instance->get()->get(), why_none))
        infos.push_back(std::move(found.info));
    } catch (const hal::Error& error) {
      why_none = error.what();
    }
    return infos;
  };
  const auto find = [instance](int index) {
    std::string why_none;
    const std::vector<PhysicalDevice> found = enumerate_devices(instance->get()->get(), why_none);
    if (index < 0 || index >= static_cast<int>(found.size()))
      throw hal::Error("vulkan:" + std::to_string(index), "must be a device that is there",
                       found.empty() ? why_none : std::to_string(found.size()) + " devices");
    return found[static_cast<std::size_t>(index)];
  };
  entry.open = [instance, find](int index) -> std::unique_ptr<hal::Device> {
    const PhysicalDevice found = find(index);
    if (!found.info.computes) return std::make_unique<CompilingDevice>(instance->get(), found, Use::compile);
    return std::make_unique<VkHalDevice>(instance->get(), found);
  };
  entry.open_to_inspect = [instance, find](int index) -> std::unique_ptr<hal::Device> {
    return std::make_unique<CompilingDevice>(instance->get(), find(index), Use::inspect);
  };
  return entry;
}

}  // namespace meshloom::backends::vulkan
