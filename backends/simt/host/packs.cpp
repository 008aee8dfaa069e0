#include "backends/simt/host/packs.h"

#include <algorithm>
#include <bit>

#include "kernels/core/contract.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::Fit;

bool divides(std::int64_t pack, std::span<const std::int64_t> extents) {
  return std::all_of(extents.begin(), extents.end(), [&](std::int64_t extent) { return extent % pack == 0; });
}

std::string unsupported_pack(const CallView& call, const hal::DeviceInfo& target, std::int64_t pack) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      if (type.dtype != hal::DType::f32 && type.dtype != hal::DType::i32 &&
          !hal::is_low_precision(type.dtype))
        return "takes floats and i32 only, not " + std::string(hal::to_string(type.dtype));
  if (pack == 1 && kernels::any_low_precision(call)) return unsupported_f16(call, target);
  return unsupported_size(call);
}

Fit fit_pack(const CallView& call, const hal::DeviceInfo& target, std::int64_t pack) {
  const std::string reason = unsupported_pack(call, target, pack);
  return reason.empty() ? Fit::yes({{"pack", pack}}) : Fit::no(reason);
}

bool gains(const CallView& call, const hal::DeviceInfo& target, HostForm host) {
  return !target.is_cpu || kernels::any_low_precision(call) ||
         (host == HostForm::packs && target.backend == "opencl");
}

}  // namespace

std::int64_t wide_pack(const CallView& call, const hal::DeviceInfo& target) {
  return target.is_cpu || kernels::any_low_precision(call) ? 8 : 4;
}

Fit fit_packs(const CallView& call, const hal::DeviceInfo& target, std::span<const std::int64_t> extents,
              HostForm host) {
  const std::int64_t wide = wide_pack(call, target);
  return fit_pack(call, target, divides(wide, extents) && gains(call, target, host) ? wide : 1);
}

std::vector<Fit> other_packs(const CallView& call, const hal::DeviceInfo& target,
                             std::span<const std::int64_t> extents, HostForm host) {
  const std::int64_t wide = wide_pack(call, target);
  if (!divides(wide, extents)) return {};
  Fit other = fit_pack(call, target, gains(call, target, host) ? 1 : wide);
  return other.ok ? std::vector{std::move(other)} : std::vector<Fit>{};
}

RowBatches row_batches(const hal::DeviceInfo& target, std::int64_t n, std::int64_t pack, std::int64_t floats,
                       std::int64_t comfortable) {
  constexpr std::int64_t kSubgroup = 64, kWide = 256, kMostSteps = 8, kLoopSteps = 4;
  const std::int64_t packs = n / pack;
  std::int64_t width = row_width(target), most = 2;
  if (!target.is_cpu) {
    most = std::clamp<std::int64_t>(floats / pack, 1, kMostSteps);
    const auto whole = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(packs)));
    const std::int64_t comfortable_packs = std::clamp<std::int64_t>(comfortable / pack, 1, most);
    if (ceil_div(packs, width) > comfortable_packs && target.limits.max_workgroup >= kWide) width = kWide;
    width = std::min(width, std::max(kSubgroup, whole));
  }
  const std::int64_t steps = ceil_div(packs, width);
  const bool held = steps <= most;
  return {static_cast<std::uint32_t>(width),
          held            ? steps
          : target.is_cpu ? 1
                          : std::min(most, kLoopSteps),
          held};
}

std::vector<hal::Define> batch_defines(const RowBatches& batches) {
  return {define("STEPS", batches.steps), define("ROW_HELD", batches.held ? 1 : 0)};
}

std::vector<hal::Define> pack_defines(const CallView& call, std::int64_t pack) {
  return {define("PACK", pack), define("NARROW", kernels::any_low_precision(call) ? 1 : 0)};
}

hal::Define dtype_define(const char* name, const kernels::TensorType& type) {
  return define(name, dtype_code(type.dtype));
}

}  // namespace meshloom::backends::simt
