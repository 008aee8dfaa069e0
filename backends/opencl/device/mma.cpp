#include "backends/opencl/device/mma.h"

#include <algorithm>
#include <string_view>

namespace meshloom::backends::opencl {
namespace {

constexpr std::string_view kCapability = "compute-capability=";

// "compute-capability=8.6"; of a device that is only planned "sm_86"; else "".
std::string generation(const hal::DeviceInfo& target) {
  for (const std::string& feature : target.features)
    if (feature.starts_with(kCapability)) return feature;
  return target.profile.isa;
}

}  // namespace

hal::MatrixShape mma_shape(hal::DType in) {
  if (in == hal::DType::i8) return {16, 8, 32, in, hal::DType::i32};
  return {16, 8, 16, in, hal::DType::f32};
}

std::string unsupported_mma(const hal::DeviceInfo& target, hal::DType in) {
  if (!hal::is_low_precision(in) && in != hal::DType::i8)
    return "multiplies f16 and bf16 only, not " + std::string(hal::to_string(in));
  const auto& shapes = target.limits.matrix_shapes;
  if (std::find(shapes.begin(), shapes.end(), mma_shape(in)) != shapes.end()) return {};
  const std::string has = generation(target);
  return "needs an NVIDIA device of compute capability 8.0 or more; this one is " + target.name +
         (has.starts_with(kCapability) ? " with " + has : "");
}

std::string unsupported_wgmma(const hal::DeviceInfo& target, hal::DType in) {
  if (std::string reason = unsupported_mma(target, in); !reason.empty()) return reason;
  const std::string has = generation(target);
  if (has == std::string(kCapability) + "9.0" || has == "sm_90") return {};
  return "needs an NVIDIA device of compute capability 9.0; this one is " + target.name +
         (has.empty() ? "" : " with " + has);
}

}  // namespace meshloom::backends::opencl
