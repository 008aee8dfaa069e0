// Attention for Trainium-like profiles: operands are transposed so that the contraction is on the partitions, and scores fill
// one PSUM bank at a time.
#include <algorithm>

#include "backends/simt/kernels/flash_attention/flash_attention_common.h"
#include "backends/simt/variants.h"

namespace meshloom::backends::simt {

namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::int64_t keys_bytes(const AttentionDims& dims) { return aligned(dims.b * dims.t * dims.kv * dims.d * 4); }
std::int64_t queries_bytes(const AttentionDims& dims) {
  return aligned(dims.b * dims.s * dims.h * dims.d * 4);
}

Fit fit_with(const CallView& call, const hal::DeviceInfo& target, std::int64_t workspace) {
  if (const std::string reason = unsupported_attention(call); !reason.empty()) return Fit::no(reason);
  const AttentionDims dims = attention_dims(call);
  if (!dims.plain()) return Fit::no("takes only full and causal attention, not " + dims.extras());
  const hal::Profile& profile = target.profile;
  if (profile.partitions <= 0 || profile.accumulator_banks <= 0)
    return Fit::no("profile " + profile.name + " has no partitions or no PSUM banks");
  // The f32 scores of one row that a bank holds.
  const std::int64_t bank = profile.accumulator_bytes / profile.partitions / profile.accumulator_banks / 4;
  if (bank < 8)
    return Fit::no("a PSUM bank holds " + std::to_string(bank) + " scores, but at least 8 are needed");
  if (workspace / 4 > (std::int64_t{1} << 31) - 1)
    return Fit::no("the transposed operands exceed 32-bit indices");
  const double rows = static_cast<double>(ceil_div(profile.partitions, lanes_of(target).rows()));
  const double moving = static_cast<double>(std::max(dims.t, dims.s * (dims.h / dims.kv)));
  const double features = dims.d <= 64 ? 1 : static_cast<double>(dims.d);
  if (const std::string reason =
          unsupported_iterations(target, rows * (moving * (1.5 + 1.25 * (features - 1)) + 8 * features));
      !reason.empty())
    return Fit::no(reason);
  const std::int64_t tile = 4 * profile.partitions * dims.d * 4;
  if (tile > profile.scratch_bytes)
    return Fit::no("tiles of q, k, v and o need " + std::to_string(tile) + " bytes of SBUF; profile " +
                   profile.name + " has " + std::to_string(profile.scratch_bytes));
  return Fit::yes({{"bank", bank / 8 * 8}, {"partitions", profile.partitions}}, workspace);
}
Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_with(call, target, keys_bytes(attention_dims(call)));
}
Fit fit_grad(const CallView& call, const hal::DeviceInfo& target) {
  const AttentionDims dims = attention_dims(call);
  return fit_with(call, target, delta_bytes(dims) + 2 * keys_bytes(dims) + 2 * queries_bytes(dims));
}

// (B, length, heads, D) -> (B, heads, D, length): features on the partitions.
void transpose(const EncodeArgs& args, hal::Binding from, hal::Binding to, std::int64_t batch,
               std::int64_t length, std::int64_t heads, std::int64_t d) {
  const std::int64_t count = batch * length * heads * d;
  launch(args, {.kernel = "permute",
                .bindings = {reads(from), writes(slice(to, 0, count * 4))},
                .constants = {hal::word(count), hal::word(heads), hal::word(d), hal::word(length),
                              hal::word(length * heads * d), hal::word(d), hal::word(std::int64_t{1}),
                              hal::word(heads * d)},
                .items = count});
}

// The launch of a kernel over tiles of PARTITIONS rows of `heads` heads with `length` rows each.
Launch over_tiles(const EncodeArgs& args, const AttentionDims& dims, const std::string& kernel,
                  std::int64_t heads, std::int64_t length) {
  const Lanes lanes = lanes_of(args.device.info());
  const std::int64_t partitions = args.choice.params.at("partitions"), blocks = ceil_div(length, partitions);
  return {.kernel = kernel,
          .defines = {{"D", std::to_string(dims.d)},
                      {"CAUSAL", dims.causal ? "1" : "0"},
                      {"LANES", std::to_string(lanes.vector)},
                      {"PARTITIONS", std::to_string(partitions)},
                      {"BANK", std::to_string(args.choice.params.at("bank"))}},
          .width = lanes.width,
          .groups = grid(dims.b * heads * blocks, 1),
          .constants = attention_constants(dims, blocks, heads)};
}

void encode(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  transpose(args, args.inputs[1], args.workspace, dims.b, dims.t, dims.kv, dims.d);
  args.commands.barrier();
  Launch command = over_tiles(args, dims, "flash_attention_partition", dims.h, dims.s);
  command.bindings = {reads(args.inputs[0]), reads(args.workspace), reads(args.inputs[2]),
                      writes(args.outputs[0]), writes(args.outputs[1])};
  launch(args, command);
}

void encode_grad(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  const std::int64_t keys = keys_bytes(dims), queries = queries_bytes(dims);
  const std::int64_t keys_at = delta_bytes(dims), values_at = keys_at + keys, queries_at = values_at + keys,
                     dout_at = queries_at + queries;
  launch_delta(args, dims, slice(args.workspace, 0, dims.b * dims.h * dims.s * 4));
  transpose(args, args.inputs[1], slice(args.workspace, keys_at, keys), dims.b, dims.t, dims.kv, dims.d);
  transpose(args, args.inputs[2], slice(args.workspace, values_at, keys), dims.b, dims.t, dims.kv, dims.d);
  transpose(args, args.inputs[0], slice(args.workspace, queries_at, queries), dims.b, dims.s, dims.h, dims.d);
  transpose(args, args.inputs[5], slice(args.workspace, dout_at, queries), dims.b, dims.s, dims.h, dims.d);
  args.commands.barrier();
  const hal::Binding space = reads(args.workspace);
  Launch dq = over_tiles(args, dims, "flash_attention_partition_dq", dims.h, dims.s);
  dq.bindings = {
      reads(args.inputs[0]),  reads(args.inputs[1]), reads(args.inputs[5]), reads(args.inputs[4]), space,
      writes(args.outputs[0])};
  dq.constants.push_back(hal::word(keys_at / 4));
  dq.constants.push_back(hal::word(values_at / 4));
  launch(args, dq);
  Launch dkv = over_tiles(args, dims, "flash_attention_partition_dkv", dims.kv, dims.t);
  dkv.bindings = {reads(args.inputs[0]),   reads(args.inputs[1]),  reads(args.inputs[2]),
                  reads(args.inputs[5]),   reads(args.inputs[4]),  space,
                  writes(args.outputs[1]), writes(args.outputs[2])};
  dkv.constants.push_back(hal::word(queries_at / 4));
  dkv.constants.push_back(hal::word(dout_at / 4));
  launch(args, dkv);
}

}  // namespace

kernels::Variant flash_attention_trainium_partition(Pass pass) {
  const bool backward = pass == Pass::backward;
  return {
      .name = "trainium_partition",
      .kinds = {hal::ProfileKind::trainium},
      .about = "features, then keys on the partitions: stationary queries, moving keys, scores in PSUM banks",
      .fit = backward ? fit_grad : fit,
      .encode = backward ? encode_grad : encode};
}

}  // namespace meshloom::backends::simt
