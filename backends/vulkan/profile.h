// The profile that a Vulkan device reports of itself.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>

#include "hal/device.h"

namespace meshloom::backends::vulkan {

// `info` must have name, vendor, is_cpu and limits. Vulkan tells neither clocks nor bandwidth: numbers that
// are estimates say so in `sources`; peak_flops stays empty where not even the number of cores is known.
hal::Profile own_profile(VkPhysicalDevice device, const hal::DeviceInfo& info);

// Memory of a device that is the host's processor: the host's, or its cgroup's limit. (lavapipe names a
// constant.)
std::int64_t host_memory();

bool has_extension(VkPhysicalDevice device, const char* name);

}  // namespace meshloom::backends::vulkan
