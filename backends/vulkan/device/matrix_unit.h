// The matrix shapes of a driver (VK_KHR_cooperative_matrix), and the sizes of subgroups that kernels may require.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <vector>

#include "hal/device.h"

namespace meshloom::backends::vulkan {

struct MatrixUnit {
  std::vector<hal::MatrixShape> shapes;  // in the driver's order; none: cooperative matrices cannot be used
  bool bfloat16 = false;                 // some shape is of bf16, which is an extension of its own
};

// The shapes of matrices held by a subgroup whose types are in hal::DType and whose sums do not saturate. None without 16-bit
// storage and the Vulkan memory model, which the kernels need too.
MatrixUnit matrix_unit(VkInstance instance, VkPhysicalDevice device);

// 0 and 0 where compute kernels cannot require a size.
struct SubgroupSizes {
  std::uint32_t min = 0, max = 0;
};
SubgroupSizes subgroup_sizes(VkPhysicalDevice device);

}  // namespace meshloom::backends::vulkan
