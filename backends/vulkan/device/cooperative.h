// What Vulkan's variants on the matrix unit share: whether there is one, and how large subgroups are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/matrix_tile.h"

namespace meshloom::backends::vulkan {

using simt::MatrixTile;

// Why the device has no matrices for this dtype of A and B (see simt::matrix_shapes); "" = it has.
std::string no_cooperative_shapes(const hal::DeviceInfo& target, hal::DType in);

// Sizes of subgroups that kernels may ask for, the most promising first.
std::vector<std::int64_t> subgroup_choices(const hal::DeviceInfo& target, const hal::MatrixShape& shape);
// For Launch::subgroup: 0 where the device takes no wishes.
std::uint32_t required_subgroup(const hal::DeviceInfo& target, std::int64_t lanes);

}  // namespace meshloom::backends::vulkan
