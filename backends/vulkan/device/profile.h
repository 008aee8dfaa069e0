// The profile of a device, from what Vulkan drivers report about its size and speed.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>

#include "hal/device.h"

namespace meshloom::backends::vulkan {

// `info` must have name, vendor, is_cpu and limits.
hal::Profile profile_of(VkPhysicalDevice device, const hal::DeviceInfo& info);

// The memory of a device that is the host's processor: the host's, or its cgroup's limit. (lavapipe reports a constant.)
std::int64_t host_memory();

bool has_extension(VkPhysicalDevice device, const char* name);

// What the device has of the features in a structure of this type.
template <typename Features>
Features features_of(VkPhysicalDevice device, VkStructureType type) {
  Features features{};
  features.sType = type;
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features, {}};
  vkGetPhysicalDeviceFeatures2(device, &all);
  return features;
}

}  // namespace meshloom::backends::vulkan
