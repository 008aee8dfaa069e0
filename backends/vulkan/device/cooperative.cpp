#include "backends/vulkan/device/cooperative.h"

#include <algorithm>

namespace meshloom::backends::vulkan {

std::string unsupported_cooperative(const hal::DeviceInfo& target, hal::DType in) {
  const std::string name{hal::to_string(in)};
  if (!hal::is_low_precision(in) && in != hal::DType::i8) return "multiplies f16 and bf16 only, not " + name;
  if (target.limits.matrix_shapes.empty())
    return "needs VK_KHR_cooperative_matrix, which the driver does not support";
  if (simt::matrix_shapes(target, in).empty())
    return "the driver lists no matrices of " + name + " with sums of " +
           std::string(hal::to_string(simt::matrix_sum(in)));
  return {};
}

std::vector<std::int64_t> subgroup_choices(const hal::DeviceInfo& target, const hal::MatrixShape& shape) {
  const hal::Limits& limits = target.limits;
  std::vector<std::int64_t> sizes{std::max(limits.subgroup, 1)};
  // Intel's unit needs subgroups of its N, whatever size other kernels get.
  if (target.vendor == "Intel" && shape.n >= limits.min_subgroup && shape.n <= limits.max_subgroup)
    sizes.front() = shape.n;
  // AMD's wants each operand twice in waves of 64, in registers and from workgroup memory.
  if (target.vendor == "AMD" && limits.min_subgroup <= 32 && limits.max_subgroup >= 32) sizes.front() = 32;
  for (std::int64_t size = std::max(limits.min_subgroup, 1); size <= limits.max_subgroup; size *= 2)
    if (size != sizes.front()) sizes.push_back(size);
  return sizes;
}

std::uint32_t required_subgroup(const hal::DeviceInfo& target, std::int64_t lanes) {
  return target.limits.max_subgroup > 0 ? static_cast<std::uint32_t>(lanes) : 0;
}

}  // namespace meshloom::backends::vulkan
