// The Vulkan devices of this machine and their properties.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"

namespace meshloom::backends::vulkan {

// The optional features of a device, which are enabled when it is opened.
struct Features {
  bool storage_16bit = false, storage_8bit = false, float16 = false, int8 = false, int16 = false,
       int64 = false, float64 = false, portability_subset = false, cooperative_matrix = false,
       bfloat16_matrix = false, subgroup_size_control = false, pipeline_statistics = false,
       executable_info = false, integer_dot = false;
};

struct PhysicalDevice {
  VkPhysicalDevice device = VK_NULL_HANDLE;
  std::uint32_t queue_family = 0, api_version = 0;
  Features features;
  std::string cache_key;  // device, driver and their versions: part of the key of every cached pipeline
  hal::DeviceInfo info;
  double timestamp_seconds = 0;  // per tick of the queue's timestamps; 0 = it has none
  std::uint64_t timestamp_mask = 0;
};

// Whether a driver stands for hardware that is not there: it compiles, and crashes or fails where it would need the hardware.
// Mesa's RADV does with RADV_FORCE_FAMILY or scripts/amdgpu-shim.c, and ANV with scripts/intel-shim.c.
bool is_null_hardware(std::string_view name, VkDriverId driver);

// The heap that tensors are allocated in: the largest one in device-local memory.
struct HeapMemory {
  std::int64_t bytes = 0;
  std::int64_t free = 0;  // what the driver would give this process now; all where it does not say
};
// `budget` is the driver's answer to VK_EXT_memory_budget, nullptr where it has none.
HeapMemory heap_memory(const VkPhysicalDeviceMemoryProperties& memory,
                       const VkPhysicalDeviceMemoryBudgetPropertiesEXT* budget);

// Discrete GPUs first, then integrated and virtual ones, then CPUs; otherwise in the loader's order. Where there is none,
// `why_none` says why, and names devices that lack what this backend needs.
std::vector<PhysicalDevice> enumerate_devices(VkInstance instance, std::string& why_none);

}  // namespace meshloom::backends::vulkan
