#include "backends/opencl/device/dpas.h"

#include <algorithm>

namespace meshloom::backends::opencl {

hal::MatrixShape dpas_shape(std::int32_t lanes, hal::DType in) {
  if (in == hal::DType::i8) return {8, lanes, 32, in, hal::DType::i32};
  return {8, lanes, 16, in, hal::DType::f32};
}

std::optional<hal::MatrixShape> find_dpas(const hal::DeviceInfo& target, hal::DType in) {
  const auto& listed = target.limits.matrix_shapes;
  for (const std::int32_t lanes : {8, 16})
    if (const hal::MatrixShape shape = dpas_shape(lanes, in);
        std::find(listed.begin(), listed.end(), shape) != listed.end())
      return shape;
  return std::nullopt;
}

std::string unsupported_dpas(const hal::DeviceInfo& target, hal::DType in) {
  if (!hal::is_low_precision(in) && in != hal::DType::i8)
    return "multiplies f16 and bf16 only, not " + std::string(hal::to_string(in));
  if (find_dpas(target, in)) return {};
  return "needs an Intel GPU whose driver has cl_intel_subgroup_matrix_multiply_accumulate; this one is " +
         target.name;
}

}  // namespace meshloom::backends::opencl
