// The Vulkan instance, with the validation layer when asked for.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <memory>

namespace meshloom::backends::vulkan {

// MESHLOOM_VULKAN_VALIDATION=1 turns on VK_LAYER_KHRONOS_validation with synchronization validation; each
// message is one line on stderr that starts with "Vulkan validation:" (the value "quiet" only counts them).
// No layer is loaded otherwise.
//
// Synchronization validation follows descriptors, which nearly every dispatch uses. It does not see the ranges
// of a dispatch that goes by device address, because one of them is beyond a descriptor's limit: hazards there
// are the business of hal's checked device.
class Instance {
 public:
  // Throws Error when there is no usable Vulkan, or validation is asked for and not installed.
  Instance();
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  VkInstance get() const { return instance_; }

 private:
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
};

// Messages of the validation layer in this process so far. A process-wide counter, since messages also come
// while instances and devices are made and unmade.
std::int64_t validation_messages();

}  // namespace meshloom::backends::vulkan
