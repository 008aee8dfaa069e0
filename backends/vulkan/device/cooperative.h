// What Vulkan's variants on the matrix unit share: whether there is one, and the sizes of subgroups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/matrix_tile.h"

namespace meshloom::backends::vulkan {

using simt::MatrixTile;

// The reason why the device has no cooperative matrices for this dtype of A and B (see simt::matrix_shapes), or "".
std::string unsupported_cooperative(const hal::DeviceInfo& target, hal::DType in);

// The sizes of subgroups that kernels may require, the fastest (presumably) first.
std::vector<std::int64_t> subgroup_choices(const hal::DeviceInfo& target, const hal::MatrixShape& shape);
// The value of Launch::subgroup; 0 where the device does not support required sizes.
std::uint32_t required_subgroup(const hal::DeviceInfo& target, std::int64_t lanes);

}  // namespace meshloom::backends::vulkan
