#include "backends/vulkan/cooperative.h"

#include <algorithm>

namespace meshloom::backends::vulkan {

std::vector<hal::MatrixShape> cooperative_shapes(const hal::DeviceInfo& target, hal::DType in) {
  std::vector<hal::MatrixShape> shapes;
  for (const hal::MatrixShape& shape : target.limits.matrix_shapes) {
    // Rows in workgroup memory are words of eight elements.
    const bool whole = shape.m % 8 == 0 && shape.n % 8 == 0 && shape.k % 8 == 0;
    if (shape.in == in && shape.sum == hal::DType::f32 && whole) shapes.push_back(shape);
  }
  std::stable_sort(shapes.begin(), shapes.end(), [](const hal::MatrixShape& a, const hal::MatrixShape& b) {
    return a.m * a.n * a.k > b.m * b.n * b.k;
  });
  return shapes;
}

std::string no_cooperative_shapes(const hal::DeviceInfo& target, hal::DType in) {
  const std::string name{hal::to_string(in)};
  if (!hal::is_narrow(in)) return "multiplies f16 and bf16 only, not " + name;
  if (target.limits.matrix_shapes.empty())
    return "needs VK_KHR_cooperative_matrix, which the driver does not have";
  if (cooperative_shapes(target, in).empty())
    return "the driver lists no matrices of " + name + " with f32 sums";
  return {};
}

std::vector<std::int64_t> subgroup_choices(const hal::DeviceInfo& target, const hal::MatrixShape& shape) {
  const hal::Limits& limits = target.limits;
  std::vector<std::int64_t> sizes{std::max(limits.subgroup, 1)};
  // Intel's unit works at the width of its N, whatever subgroups other kernels get.
  if (target.vendor == "Intel" && shape.n >= limits.least_subgroup && shape.n <= limits.most_subgroup)
    sizes.front() = shape.n;
  for (std::int64_t size = std::max(limits.least_subgroup, 1); size <= limits.most_subgroup; size *= 2)
    if (size != sizes.front()) sizes.push_back(size);
  return sizes;
}

std::uint32_t required_subgroup(const hal::DeviceInfo& target, std::int64_t lanes) {
  return target.limits.most_subgroup > 0 ? static_cast<std::uint32_t>(lanes) : 0;
}

std::int64_t most_sums(std::int64_t lanes) { return lanes >= 32 ? 128 : 64; }

std::vector<hal::Define> cooperative_defines(const hal::MatrixShape& shape, std::int64_t lanes) {
  return {{"MATRIX_M", std::to_string(shape.m)},
          {"MATRIX_N", std::to_string(shape.n)},
          {"MATRIX_K", std::to_string(shape.k)},
          {"MATRIX_BF16", shape.in == hal::DType::bf16 ? "1" : "0"},
          {"LANES_OF_SUBGROUP", std::to_string(lanes)}};
}

}  // namespace meshloom::backends::vulkan
