#include "backends/simt/kernels/flash_attention/flash_attention_common.h"

#include <algorithm>
#include <utility>

#include "backends/simt/host/quirks.h"

namespace meshloom::backends::simt {
namespace {

constexpr std::int64_t kMaxWords = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 24;
constexpr std::int64_t kUnlimited = std::int64_t{1} << 28;  // UNLIMITED of attention_extras.inc

// The optional inputs of a call, in the contract's order, each with its bit of `present`.
struct Extra {
  int input;
  std::int64_t bit;
};
std::vector<Extra> extras_of(const kernels::AttentionDims& dims) {
  std::vector<Extra> present;
  for (const Extra& extra : {Extra{dims.q_segments, 1}, Extra{dims.k_segments, 1}, Extra{dims.prefix, 2},
                             Extra{dims.query_offset, 4}, Extra{dims.sink, 8}, Extra{dims.slopes, 16},
                             Extra{dims.rng_state, 32}, Extra{dims.attention_bitmask, 0}})
    if (extra.input >= 0) present.push_back(extra);
  return present;
}

// Records dsink, from partial sums per batch row.
void launch_dsink(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, hal::Binding delta,
                  hal::Binding parts) {
  const std::uint32_t width = lanes_of(args.device.info()).width;
  launch(args, {.kernel = "flash_attention_dsink",
                .defines = {{"TOTAL", "0"}},
                .width = width,
                .groups = grid(dims.b * dims.h, width),
                .bindings = {reads(args.inputs[static_cast<std::size_t>(dims.sink)]), reads(args.inputs[4]),
                             reads(delta), writes(parts)},
                .constants = {hal::word(dims.b * dims.h), hal::word(dims.h), hal::word(dims.s)}});
  args.commands.barrier();
  launch(args, {.kernel = "flash_attention_dsink",
                .defines = {{"TOTAL", "1"}},
                .width = width,
                .groups = grid(dims.h, width),
                .bindings = {reads(parts), writes(args.outputs[3])},
                .constants = {hal::word(dims.b), hal::word(dims.h)}});
}

}  // namespace

Lanes lanes_of(const hal::DeviceInfo& target) {
  if (!target.is_cpu)
    return {static_cast<std::uint32_t>(std::min(64, target.limits.max_workgroup)), 1, false};
  if (target.backend == "opencl" && !quirks_of(target.name).splits_vectors) return {1, 8, false};
  return {static_cast<std::uint32_t>(std::max(target.limits.subgroup, 4)), 1, target.has("subgroup-shuffle")};
}

std::string unsupported_attention(const kernels::CallView& call) {
  if (std::string reason = unsupported_dtype(call); !reason.empty()) return reason;
  return unsupported_attention_size(call);
}

std::string unsupported_attention_size(const kernels::CallView& call) {
  if (std::string reason = unsupported_size(call); !reason.empty()) return reason;
  const kernels::AttentionDims dims = attention_dims(call);
  for (const std::int64_t width : {dims.d, dims.dv})
    if (width > 256) return "the head dim " + std::to_string(width) + " is above 256";
  // Kernels compare positions as f32.
  for (const std::int64_t length : {dims.s, dims.t})
    if (length > kMaxPosition) return "a sequence of " + std::to_string(length) + " positions is above 2^24";
  return {};
}

std::vector<hal::Define> attention_defines(const kernels::AttentionDims& dims, const Lanes& lanes,
                                           bool staged, bool splash) {
  const std::int64_t width = std::max(dims.d, dims.dv);
  const int keys = width <= 64 ? 4 : width <= 128 ? 2 : 1;
  const bool extras = has_extras(dims);
  std::vector<hal::Define> defines{
      {"D", std::to_string(dims.d)},          {"DV", std::to_string(dims.dv)},
      {"EXTRAS", extras ? "1" : "0"},         {"CAUSAL", dims.causal && !extras ? "1" : "0"},
      {"KEYS", std::to_string(keys)},         {"LANES", std::to_string(lanes.vector)},
      {"SHUFFLE", lanes.shuffle ? "1" : "0"}, {"STAGED", staged ? "1" : "0"},
      {"SPLASH", splash ? "1" : "0"}};
  if (dims.rng_state >= 0) defines.push_back({"DROPOUT", "1"});
  add_bias_and_bitmask_defines(defines, dims, lanes.rows());
  return defines;
}

void add_bias_and_bitmask_defines(std::vector<hal::Define>& defines, const kernels::AttentionDims& dims,
                                  std::int64_t rows) {
  if (dims.bias >= 0) defines.push_back({"BIAS", "1"});
  if (dims.attention_bitmask < 0) return;
  defines.push_back({"BITMASK", "1"});
  defines.push_back({"SUMMARY_ROWS", std::to_string(rows)});
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

std::int64_t masks_of(const kernels::AttentionDims& dims) {
  return (dims.bitmask_rows ? dims.b : 1) * (dims.bitmask_heads ? dims.h : 1);
}

// The words of the bitmask's summary.
std::int64_t summary_words(const kernels::AttentionDims& dims, std::int64_t rows) {
  return masks_of(dims) * ceil_div(dims.s, rows) * dims.bits_words();
}

// The bytes of the optional inputs, one after the other.
std::int64_t inputs_used(const kernels::AttentionDims& dims) {
  std::int64_t words = 0;
  if (dims.q_segments >= 0) words += dims.b * (dims.s + dims.t);
  for (const int rows : {dims.prefix, dims.query_offset}) words += rows >= 0 ? dims.b : 0;
  for (const int heads : {dims.sink, dims.slopes}) words += heads >= 0 ? dims.h : 0;
  if (dims.rng_state >= 0) words += 3;
  if (dims.attention_bitmask >= 0) words += masks_of(dims) * dims.s * dims.bits_words();
  return words * 4;
}

// The end of the extras that begin at byte `at`.
std::int64_t extras_end(const kernels::AttentionDims& dims, std::int64_t at, std::int64_t rows) {
  const std::int64_t end = at + inputs_used(dims);
  return dims.attention_bitmask < 0 ? end : aligned(end) + summary_words(dims, rows) * 4;
}

std::int64_t delta_used(const kernels::AttentionDims& dims) { return dims.b * dims.h * dims.s * 4; }

}  // namespace

std::int64_t extras_bytes(const kernels::AttentionDims& dims, std::int64_t rows) {
  return aligned(extras_end(dims, 0, rows));
}

std::string unsupported_workspace(std::int64_t workspace) {
  if (workspace / 4 <= kMaxWords) return {};
  return "indexes with 32 bits, but its workspace has " + std::to_string(workspace) + " bytes";
}

void copy_extras(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, std::int64_t at,
                 std::int64_t rows) {
  for (const Extra& extra : extras_of(dims)) {
    const hal::Binding& from = args.inputs[static_cast<std::size_t>(extra.input)];
    args.commands.copy(reads(from), writes(slice(args.workspace, at, from.bytes)), args.label);
    at += from.bytes;
  }
  if (dims.attention_bitmask < 0) return;
  const std::int64_t words = summary_words(dims, rows);
  // The gap is part of the binding, so it must be defined.
  if (aligned(at) > at)
    args.commands.fill(writes(slice(args.workspace, at, aligned(at) - at)), hal::word(0.0f), args.label);
  launch(args, {.kernel = "flash_attention_mask_summary",
                .defines = {{"SUMMARY_ROWS", std::to_string(rows)}},
                .bindings = {reads(args.inputs[static_cast<std::size_t>(dims.attention_bitmask)]),
                             writes(slice(args.workspace, aligned(at), words * 4))},
                .constants = {hal::word(words), hal::word(dims.s), hal::word(dims.bits_words())},
                .items = words});
}

void bind_extras(Launch& forward, const kernels::EncodeArgs& args, const kernels::AttentionDims& dims,
                 std::int64_t rows) {
  const std::int64_t bytes = extras_end(dims, 0, rows);
  forward.bindings.push_back(
      reads(whole_words(bytes > 0 ? slice(args.workspace, 0, bytes) : args.inputs[0])));
  if (dims.bias >= 0) forward.bindings.push_back(reads(args.inputs[static_cast<std::size_t>(dims.bias)]));
}

std::int64_t present_bits(const kernels::AttentionDims& dims) {
  std::int64_t present = 0;
  for (const Extra& extra : extras_of(dims)) present |= extra.bit;
  return present | (dims.bias_rows ? 64 : 0) | (dims.bias_heads ? 128 : 0) | (dims.bitmask_rows ? 256 : 0) |
         (dims.bitmask_heads ? 512 : 0);
}

std::int64_t present_options(const kernels::AttentionDims& dims) {
  return present_bits(dims) | (dims.left < kernels::kUnlimited ? 1024 : 0) |
         (dims.right < kernels::kUnlimited ? 2048 : 0);
}

void add_extra_constants(std::vector<hal::Word>& constants, const kernels::AttentionDims& dims,
                         std::int64_t at) {
  for (const std::int64_t number :
       {std::min(dims.left, kUnlimited), std::min(dims.right, kUnlimited), present_bits(dims), at / 4})
    constants.push_back(hal::word(number));
  constants.push_back(hal::word(static_cast<float>(dims.soft_cap)));
  if (dims.rng_state < 0) return;
  for (const std::uint32_t bits : {dims.k0, dims.k1, dims.threshold()})
    constants.push_back(hal::word(std::int64_t{bits}));
  constants.push_back(hal::word(static_cast<float>(dims.kept())));
}

std::int64_t delta_bytes(const kernels::AttentionDims& dims) { return aligned(delta_used(dims)); }
std::int64_t grad_extras_at(const kernels::AttentionDims& dims) {
  return delta_used(dims) * (dims.bias >= 0 ? 2 : 1);
}

void launch_delta(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, hal::Binding into,
                  Launch delta) {
  const std::int64_t count = dims.b * dims.h * dims.s;
  if (delta.kernel.empty()) delta.kernel = "flash_attention_delta";
  delta.bindings = {reads(whole_words(args.inputs[3])), reads(whole_words(args.inputs[5])), writes(into)};
  delta.constants = {hal::word(count), hal::word(dims.s), hal::word(dims.h), hal::word(dims.dv)};
  delta.items = count;
  launch(args, delta);
}

namespace {

// The bytes of a backward pass's workspace: delta, then lse and extras.
std::int64_t grad_used(const kernels::AttentionDims& dims, bool extras, std::int64_t rows) {
  return extras ? extras_end(dims, grad_extras_at(dims), rows) : delta_used(dims);
}

// Records what the backward kernels read, and a barrier. Returns the first bindings of these kernels: delta, lse and extras
// share one, since a kernel has at most eight, and a bias takes the binding of lse.
std::vector<hal::Binding> prepare_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims,
                                       bool extras, std::int64_t rows, Launch delta) {
  launch_delta(args, dims, slice(args.workspace, 0, delta_used(dims)), std::move(delta));
  if (dims.bias >= 0)
    args.commands.copy(reads(args.inputs[4]),
                       writes(slice(args.workspace, delta_used(dims), delta_used(dims))), args.label);
  if (extras) copy_extras(args, dims, grad_extras_at(dims), rows);
  args.commands.barrier();
  std::vector<hal::Binding> bindings;
  for (const int input : {0, 1, 2, 5, dims.bias >= 0 ? dims.bias : 4})
    bindings.push_back(reads(whole_words(args.inputs[static_cast<std::size_t>(input)])));
  bindings.push_back(reads(slice(args.workspace, 0, grad_used(dims, extras, rows))));
  return bindings;
}

}  // namespace

std::int64_t grad_workspace(const kernels::AttentionDims& dims, bool extras, std::int64_t rows) {
  return aligned(grad_used(dims, extras, rows)) + (dims.sink >= 0 ? aligned(dims.b * dims.h * 4) : 0);
}

void launch_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, bool extras,
                 std::int64_t rows, Launch dq, Launch dkv, Launch delta, Launch dv) {
  const bool apart = !dv.kernel.empty();
  dq.bindings = prepare_grad(args, dims, extras, rows, std::move(delta));
  dkv.bindings = dq.bindings;
  dv.bindings = dq.bindings;
  dq.bindings.push_back(writes(whole_words(args.outputs[0])));
  dkv.bindings.push_back(writes(whole_words(args.outputs[1])));
  (apart ? dv : dkv).bindings.push_back(writes(whole_words(args.outputs[2])));
  launch(args, dq);
  launch(args, dkv);
  if (apart) launch(args, dv);
  if (dims.sink >= 0)
    launch_dsink(args, dims, slice(args.workspace, 0, delta_used(dims)),
                 slice(args.workspace, aligned(grad_used(dims, extras, rows)), dims.b * dims.h * 4));
}

void launch_bias_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, std::int64_t rows,
                      std::int64_t span, Launch dq) {
  dq.defines.push_back({"COMPUTE_DBIAS", "1"});
  dq.defines.push_back({"SPAN", std::to_string(span)});
  const std::int64_t biases = (dims.bias_rows ? dims.b : 1) * (dims.bias_heads ? dims.h : 1);
  dq.groups = grid(biases * ceil_div(dims.s, rows) * ceil_div(dims.t, span), 1);
  dq.bindings = prepare_grad(args, dims, true, rows, {});
  dq.bindings.push_back(writes(args.outputs[0]));
  launch(args, dq);
}

}  // namespace meshloom::backends::simt
