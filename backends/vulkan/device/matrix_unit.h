// What a driver's matrix unit multiplies (VK_KHR_cooperative_matrix), and the sizes of subgroups it can be
// asked for.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <vector>

#include "hal/device.h"

namespace meshloom::backends::vulkan {

struct MatrixUnit {
  std::vector<hal::MatrixShape>
      shapes;             // in the driver's order; none: cooperative matrices are not to be used
  bool bfloat16 = false;  // some shape is of bf16, which is an extension of its own
};

// Of matrices held by a subgroup, those whose types hal::DType names and that do not saturate. Needs 16-bit
// storage and the Vulkan memory model beside the extension, without which kernels could not use them.
MatrixUnit matrix_unit(VkInstance instance, VkPhysicalDevice device);

// 0 and 0 where compute kernels cannot ask for a size.
struct SubgroupSizes {
  std::uint32_t least = 0, most = 0;
};
SubgroupSizes subgroup_sizes(VkPhysicalDevice device);

}  // namespace meshloom::backends::vulkan
