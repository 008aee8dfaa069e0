#include "backends/vulkan/device/status.h"

#include <array>

#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

struct Name {
  VkResult status;
  const char* text;
};
constexpr std::array kNames{
    Name{VK_TIMEOUT, "VK_TIMEOUT"},
    Name{VK_ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"},
    Name{VK_ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"},
    Name{VK_ERROR_INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED"},
    Name{VK_ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST"},
    Name{VK_ERROR_MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED"},
    Name{VK_ERROR_LAYER_NOT_PRESENT, "VK_ERROR_LAYER_NOT_PRESENT"},
    Name{VK_ERROR_EXTENSION_NOT_PRESENT, "VK_ERROR_EXTENSION_NOT_PRESENT"},
    Name{VK_ERROR_FEATURE_NOT_PRESENT, "VK_ERROR_FEATURE_NOT_PRESENT"},
    Name{VK_ERROR_INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER"},
    Name{VK_ERROR_TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS"},
    Name{VK_ERROR_INVALID_SHADER_NV, "VK_ERROR_INVALID_SHADER_NV"},
    Name{VK_ERROR_UNKNOWN, "VK_ERROR_UNKNOWN"},
};

}  // namespace

std::string status_name(VkResult status) {
  for (const Name& name : kNames)
    if (name.status == status) return std::string(name.text) + " (" + std::to_string(status) + ")";
  return "VkResult " + std::to_string(status);
}

void check(VkResult status, const std::string& where, const std::string& call) {
  if (status >= VK_SUCCESS) return;
  const std::string rule = call + " must succeed";
  const std::string found = status_name(status);
  if (status == VK_ERROR_DEVICE_LOST)
    throw hal::DeviceLost(where, "the device stopped answering at " + call, found);
  if (status == VK_ERROR_OUT_OF_DEVICE_MEMORY || status == VK_ERROR_OUT_OF_HOST_MEMORY)
    throw hal::OutOfMemory(where, rule, found);
  throw hal::Error(where, rule, found);
}

}  // namespace meshloom::backends::vulkan
