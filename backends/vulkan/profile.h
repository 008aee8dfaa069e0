// The profile that a Vulkan device reports of itself.
#pragma once

#include <vulkan/vulkan.h>

#include "hal/device.h"

namespace meshloom::backends::vulkan {

// `info` must have name, vendor, is_cpu and limits. Vulkan tells neither clocks nor bandwidth: numbers that
// are estimates say so in `sources`; peak_flops stays empty where not even the number of cores is known.
hal::Profile own_profile(VkPhysicalDevice device, const hal::DeviceInfo& info);

bool has_extension(VkPhysicalDevice device, const char* name);

}  // namespace meshloom::backends::vulkan
