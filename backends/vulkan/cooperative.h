// What the variants on the matrix unit share: which shape to use, how large subgroups are, and the defines of
// kernels/cooperative.inc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/simt/launch.h"
#include "hal/device.h"

namespace meshloom::backends::vulkan {

// The matrix shapes of a device for one dtype of A and B with f32 sums, the one that does most first.
std::vector<hal::MatrixShape> cooperative_shapes(const hal::DeviceInfo& target, hal::DType in);
// Why there is none; "" = there is.
std::string no_cooperative_shapes(const hal::DeviceInfo& target, hal::DType in);

// Sizes of subgroups that kernels may ask for, the most promising first.
std::vector<std::int64_t> subgroup_choices(const hal::DeviceInfo& target, const hal::MatrixShape& shape);
// For Launch::subgroup: 0 where the device takes no wishes.
std::uint32_t required_subgroup(const hal::DeviceInfo& target, std::int64_t lanes);

// Most f32 sums an invocation holds in registers beside its operands, by the size of its subgroup.
std::int64_t most_sums(std::int64_t lanes);

// MATRIX_M, MATRIX_N, MATRIX_K, MATRIX_BF16, LANES_OF_SUBGROUP.
std::vector<hal::Define> cooperative_defines(const hal::MatrixShape& shape, std::int64_t lanes);

}  // namespace meshloom::backends::vulkan
