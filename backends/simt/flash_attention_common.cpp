#include "backends/simt/flash_attention_common.h"

#include <algorithm>
#include <utility>

namespace meshloom::backends::simt {
namespace {

constexpr std::int64_t kMostPosition = std::int64_t{1} << 24;
constexpr std::int64_t kFarPosition = std::int64_t{1} << 28;  // FAR_POSITION of attention_extras.inc

// The optional inputs a call has, in the contract's order, each with its bit of `present`.
struct Extra {
  int input;
  std::int64_t bit;
};
std::vector<Extra> extras_of(const kernels::AttentionDims& dims) {
  std::vector<Extra> present;
  for (const Extra& extra : {Extra{dims.q_segments, 1}, Extra{dims.k_segments, 1}, Extra{dims.prefix, 2},
                             Extra{dims.starts, 4}, Extra{dims.sink, 8}, Extra{dims.slopes, 16},
                             Extra{dims.draw, 32}})
    if (extra.input >= 0) present.push_back(extra);
  return present;
}

std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// dsink, from partial sums per batch row.
void launch_dsink(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, hal::Binding delta,
                  hal::Binding parts) {
  const std::uint32_t width = lanes_of(args.device.info()).width;
  launch(args, {.kernel = "flash_attention_dsink",
                .defines = {{"TOTAL", "0"}},
                .width = width,
                .groups = grid(dims.b * dims.h, width),
                .bindings = {reading(args.inputs[static_cast<std::size_t>(dims.sink)]),
                             reading(args.inputs[4]), reading(delta), writing(parts)},
                .constants = {hal::word(dims.b * dims.h), hal::word(dims.h), hal::word(dims.s)}});
  args.commands.barrier();
  launch(args, {.kernel = "flash_attention_dsink",
                .defines = {{"TOTAL", "1"}},
                .width = width,
                .groups = grid(dims.h, width),
                .bindings = {reading(parts), writing(args.outputs[3])},
                .constants = {hal::word(dims.b), hal::word(dims.h)}});
}

}  // namespace

Lanes lanes_of(const hal::DeviceInfo& target) {
  if (!target.is_cpu)
    return {static_cast<std::uint32_t>(std::min(64, target.limits.max_workgroup)), 1, false};
  if (target.backend == "opencl" && !on_llvmpipe(target)) return {1, 8, false};
  const auto& features = target.features;
  const bool shuffles = std::find(features.begin(), features.end(), "subgroup-shuffle") != features.end();
  return {static_cast<std::uint32_t>(std::max(target.limits.subgroup, 4)), 1, shuffles};
}

std::string attention_unfit(const kernels::CallView& call) {
  if (std::string reason = unfit(call); !reason.empty()) return reason;
  return attention_unfit_of_any_dtype(call);
}

std::string attention_unfit_of_any_dtype(const kernels::CallView& call) {
  if (std::string reason = indexable(call); !reason.empty()) return reason;
  const kernels::AttentionDims dims = attention_dims(call);
  if (dims.bias >= 0 || dims.visible >= 0) return "takes no bias and no mask of bits";
  for (const std::int64_t width : {dims.d, dims.dv})
    if (width > 256) return "head dimension " + std::to_string(width) + " is above 256";
  // Kernels compare positions as floats.
  for (const std::int64_t length : {dims.s, dims.t})
    if (length > kMostPosition) return "a sequence of " + std::to_string(length) + " is above 2^24";
  return {};
}

std::vector<hal::Define> attention_defines(const kernels::AttentionDims& dims, const Lanes& lanes,
                                           bool staged, bool splash) {
  const std::int64_t width = std::max(dims.d, dims.dv);
  const int keys = width <= 64 ? 4 : width <= 128 ? 2 : 1;
  const bool extras = has_extras(dims);
  std::vector<hal::Define> defines{
          {"D", std::to_string(dims.d)},        {"DV", std::to_string(dims.dv)},
          {"EXTRAS", extras ? "1" : "0"},       {"CAUSAL", dims.causal && !extras ? "1" : "0"},
          {"KEYS", std::to_string(keys)},       {"LANES", std::to_string(lanes.vector)},
          {"SPREAD", lanes.spread ? "1" : "0"}, {"STAGED", staged ? "1" : "0"},
          {"SPLASH", splash ? "1" : "0"}};
  if (dims.draw >= 0) defines.push_back({"DROPOUT", "1"});
  return defines;
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

bool has_extras(const kernels::AttentionDims& dims) {
  kernels::AttentionDims same_width = dims;
  same_width.dv = dims.d;
  return !same_width.plain();
}

namespace {

// That the optional inputs take, one behind the other.
std::int64_t extras_used(const kernels::AttentionDims& dims) {
  std::int64_t words = 0;
  if (dims.q_segments >= 0) words += dims.b * (dims.s + dims.t);
  for (const int rows : {dims.prefix, dims.starts}) words += rows >= 0 ? dims.b : 0;
  for (const int heads : {dims.sink, dims.slopes}) words += heads >= 0 ? dims.h : 0;
  if (dims.draw >= 0) words += 3;
  return words * 4;
}

std::int64_t delta_used(const kernels::AttentionDims& dims) { return dims.b * dims.h * dims.s * 4; }

}  // namespace

std::int64_t extras_bytes(const kernels::AttentionDims& dims) { return aligned(extras_used(dims)); }

void copy_extras(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, std::int64_t at) {
  for (const Extra& extra : extras_of(dims)) {
    const hal::Binding& from = args.inputs[static_cast<std::size_t>(extra.input)];
    args.commands.copy(reading(from), writing(part(args.workspace, at, from.bytes)), args.label);
    at += from.bytes;
  }
}

hal::Binding extras_binding(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims) {
  const std::int64_t bytes = extras_used(dims);
  return reading(bytes > 0 ? part(args.workspace, 0, bytes) : args.inputs[0]);
}

void add_extra_constants(std::vector<hal::Word>& constants, const kernels::AttentionDims& dims,
                         std::int64_t at) {
  std::int64_t present = 0;
  for (const Extra& extra : extras_of(dims)) present |= extra.bit;
  for (const std::int64_t number :
       {std::min(dims.left, kFarPosition), std::min(dims.right, kFarPosition), present, at / 4})
    constants.push_back(hal::word(number));
  constants.push_back(hal::word(static_cast<float>(dims.soft_cap)));
  if (dims.draw < 0) return;
  for (const std::uint32_t bits : {dims.k0, dims.k1, dims.threshold()})
    constants.push_back(hal::word(std::int64_t{bits}));
  constants.push_back(hal::word(static_cast<float>(dims.kept())));
}

std::int64_t blocks_of(std::int64_t rows, std::int64_t block) { return (rows + block - 1) / block; }

std::int64_t delta_bytes(const kernels::AttentionDims& dims) { return aligned(delta_used(dims)); }
std::int64_t grad_extras_at(const kernels::AttentionDims& dims) { return delta_used(dims); }

void launch_delta(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, hal::Binding into,
                  Launch delta) {
  const std::int64_t count = dims.b * dims.h * dims.s;
  if (delta.kernel.empty()) delta.kernel = "flash_attention_delta";
  delta.bindings = {reading(whole_words(args.inputs[3])), reading(whole_words(args.inputs[5])), writing(into)};
  delta.constants = {hal::word(count), hal::word(dims.s), hal::word(dims.h), hal::word(dims.dv)};
  delta.each = count;
  launch(args, delta);
}

std::int64_t grad_workspace(const kernels::AttentionDims& dims, bool extras) {
  return aligned(delta_used(dims) + (extras ? extras_used(dims) : 0)) +
         (dims.sink >= 0 ? aligned(dims.b * dims.h * 4) : 0);
}

void launch_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, bool extras, Launch dq,
                 Launch dkv, Launch delta) {
  const hal::Binding deltas = part(args.workspace, 0, delta_used(dims));
  const std::int64_t extras_at = grad_extras_at(dims), used = extras_at + (extras ? extras_used(dims) : 0);
  launch_delta(args, dims, deltas, std::move(delta));
  if (extras) copy_extras(args, dims, extras_at);
  args.commands.barrier();
  // Extras lie right behind delta in one binding: eight are the most a kernel has.
  for (const std::size_t input : {0, 1, 2, 5, 4}) dq.bindings.push_back(reading(whole_words(args.inputs[input])));
  dq.bindings.push_back(reading(part(args.workspace, 0, used)));
  dkv.bindings = dq.bindings;
  dq.bindings.push_back(writing(whole_words(args.outputs[0])));
  dkv.bindings.push_back(writing(whole_words(args.outputs[1])));
  dkv.bindings.push_back(writing(whole_words(args.outputs[2])));
  launch(args, dq);
  launch(args, dkv);
  if (dims.sink >= 0) launch_dsink(args, dims, deltas, part(args.workspace, aligned(used), dims.b * dims.h * 4));
}

}  // namespace meshloom::backends::simt
