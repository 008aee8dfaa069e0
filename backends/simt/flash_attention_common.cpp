#include "backends/simt/flash_attention_common.h"

#include <algorithm>

namespace meshloom::backends::simt {

Lanes lanes_of(const hal::DeviceInfo& target) {
  if (!target.is_cpu)
    return {static_cast<std::uint32_t>(std::min(64, target.limits.max_workgroup)), 1, false};
  if (target.backend == "opencl") return {1, 8, false};
  const auto& features = target.features;
  const bool shuffles = std::find(features.begin(), features.end(), "subgroup-shuffle") != features.end();
  return {static_cast<std::uint32_t>(std::max(target.limits.subgroup, 4)), 1, shuffles};
}

std::string attention_unfit(const kernels::CallView& call) {
  const kernels::AttentionDims dims = attention_dims(call);
  if (!dims.plain()) return "takes full and causal attention, not " + dims.extras();
  if (std::string reason = unfit(call); !reason.empty()) return reason;
  if (dims.d > 256) return "head dimension " + std::to_string(dims.d) + " is above 256";
  return {};
}

std::vector<hal::Define> attention_defines(const kernels::AttentionDims& dims, const Lanes& lanes,
                                           bool staged, bool splash) {
  const int keys = dims.d <= 64 ? 4 : dims.d <= 128 ? 2 : 1;
  return {{"D", std::to_string(dims.d)},        {"CAUSAL", dims.causal ? "1" : "0"},
          {"KEYS", std::to_string(keys)},       {"LANES", std::to_string(lanes.vector)},
          {"SPREAD", lanes.spread ? "1" : "0"}, {"STAGED", staged ? "1" : "0"},
          {"SPLASH", splash ? "1" : "0"}};
}

std::vector<hal::Word> attention_constants(const kernels::AttentionDims& dims, std::int64_t blocks,
                                           std::int64_t heads) {
  return {hal::word(dims.s),
          hal::word(dims.t),
          hal::word(dims.h),
          hal::word(dims.kv),
          hal::word(blocks),
          hal::word(dims.b * heads * blocks),
          hal::word(static_cast<float>(dims.scale))};
}

std::int64_t blocks_of(std::int64_t rows, std::int64_t block) { return (rows + block - 1) / block; }

std::int64_t delta_bytes(const kernels::AttentionDims& dims) {
  return (dims.b * dims.h * dims.s * 4 + 255) / 256 * 256;
}

void launch_delta(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, hal::Binding delta) {
  const std::int64_t count = dims.b * dims.h * dims.s;
  launch(args, {.kernel = "flash_attention_delta",

                .bindings = {reading(args.inputs[3]), reading(args.inputs[5]), writing(delta)},
                .constants = {hal::word(count), hal::word(dims.s), hal::word(dims.h), hal::word(dims.d)},
                .each = count});
}

}  // namespace meshloom::backends::simt
