// The Vulkan instance, optionally with the validation layer.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <memory>

namespace meshloom::backends::vulkan {

// MESHLOOM_VULKAN_VALIDATION=1 turns on VK_LAYER_KHRONOS_validation with synchronization validation; each
// message is one line on stderr that starts with "Vulkan validation:" (the value "quiet" only counts them).
// No layer is loaded otherwise.
//
// Synchronization validation follows descriptors, which nearly every dispatch uses. It does not see the ranges of a dispatch
// that passes device addresses, because one of its ranges is beyond a descriptor's limit; hal's checked device finds hazards
// there.
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

// The number of messages of the validation layer in this process so far. Process-wide, since messages also come while
// instances and devices are created and destroyed.
std::int64_t validation_messages();

}  // namespace meshloom::backends::vulkan
