#include "backends/opencl/device/mma.h"

#include <algorithm>

namespace meshloom::backends::opencl {

hal::MatrixShape mma_shape(hal::DType in) { return {16, 8, 16, in, hal::DType::f32}; }

std::string unsupported_mma(const hal::DeviceInfo& target, hal::DType in) {
  if (!hal::is_low_precision(in))
    return "multiplies f16 and bf16 only, not " + std::string(hal::to_string(in));
  const auto& shapes = target.limits.matrix_shapes;
  if (std::find(shapes.begin(), shapes.end(), mma_shape(in)) != shapes.end()) return {};
  std::string has;
  for (const std::string& feature : target.features)
    if (feature.starts_with("compute-capability=")) has = " with " + feature;
  return "needs an NVIDIA device of compute capability 8.0 or more; this one is " + target.name + has;
}

}  // namespace meshloom::backends::opencl
