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

}  // namespace meshloom::backends::vulkan
