// VkResult codes as errors.
#pragma once

#include <vulkan/vulkan.h>

#include <string>

namespace meshloom::backends::vulkan {

std::string status_name(VkResult status);  // "VK_ERROR_DEVICE_LOST (-4)"

// Throws DeviceLost, OutOfMemory or Error (by the code) when `status` is an error.
void check(VkResult status, const std::string& where, const std::string& call);

}  // namespace meshloom::backends::vulkan
