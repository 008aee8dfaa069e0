// Attention of 16-bit floats on the matrix unit: forward in one kernel, backward in one for dQ and one for dK
// and dV.
#include <algorithm>
#include <utility>

#include "backends/simt/kernels/flash_attention/flash_attention_common.h"
#include "backends/simt/variants.h"
#include "backends/vulkan/device/cooperative.h"
#include "hal/math.h"

namespace meshloom::backends::vulkan {
namespace {

using hal::ceil_div;
using hal::round_up;
using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// A workgroup of `subgroups`, each with shape.m rows of its own, past which tiles of `keys` rows are
// streamed.
struct Tile {
  hal::MatrixShape shape;
  std::int64_t lanes, subgroups, keys;

  // Features, padded to whole matrices of either operand.
  std::int64_t padded(std::int64_t features) const { return round_up(features, std::max(shape.n, shape.k)); }
  std::int64_t rows() const { return subgroups * shape.m; }
  std::int64_t workgroup() const { return subgroups * lanes; }
  std::int64_t items() const { return shape.m * keys / 8; }  // groups of eight scores of a subgroup

  std::int64_t shared_bytes(const AttentionDims& d, bool backward) const {
    const std::int64_t words = padded(d.d) / 8 + 1, value_words = padded(d.dv) / 8 + 1,
                       score_words = keys / 4 + 1;
    if (backward) return 16 * ((rows() + keys) * (words + value_words) + 2 * rows() * score_words);
    return 16 * ((rows() + keys) * words + keys * value_words + rows() * score_words) +
           4 * rows() * (shape.n + 2 * (keys / 8) + 2);
  }
  std::int64_t workspace(const AttentionDims& d, bool backward) const {
    return backward ? simt::grad_workspace(d, true, rows()) : simt::extras_bytes(d, rows());
  }
  // Of an invocation, at least (see simt::max_iterations).
  double iterations(const AttentionDims& d, bool backward) const {
    const std::int64_t features = padded(d.d) + padded(d.dv);
    const std::int64_t step = keys * features / 8 / workgroup() + 4 +
                              keys / shape.n * (features / shape.k + 2) + items() / lanes * (12 + keys / 8) +
                              features / shape.n * (2 * keys / shape.k + 2) + shape.m * shape.n / lanes;
    const std::int64_t streamed = backward ? std::max(d.t, d.s * (d.h / d.kv)) : d.t;
    const std::int64_t skipped = d.attention_bitmask < 0 ? 0
                                 : backward              ? streamed / rows() * (rows() / 32 + 2) + d.t / 8
                                                         : d.t / 8;
    const std::int64_t around =
        rows() * features / 8 / workgroup() + features / shape.n * (shape.m * shape.n / lanes + 2);
    return static_cast<double>((streamed / keys + d.h / d.kv) * step + around + skipped);
  }
};

// Why not; "" = the device has room for it.
std::string unsupported_tile(const Tile& tile, const AttentionDims& d, const hal::DeviceInfo& target,
                             bool backward) {
  const hal::MatrixShape& shape = tile.shape;
  if (tile.keys % shape.n != 0 || tile.keys % shape.k != 0 || tile.items() % tile.lanes != 0)
    return "tiles of " + std::to_string(tile.keys) + " keys are not whole matrices of " + to_string(shape);
  const std::int64_t sums = tile.padded(d.dv) + (backward ? tile.padded(d.d) : 0);
  if (sums * shape.m > simt::max_sums(tile.lanes) * tile.lanes)
    return "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) +
           " features do not fit the registers of a subgroup of " + std::to_string(tile.lanes);
  if (tile.workgroup() > target.limits.max_workgroup)
    return "the driver's workgroups have at most " + std::to_string(target.limits.max_workgroup) +
           " invocations";
  if (tile.shared_bytes(d, backward) > target.limits.max_local_bytes)
    return "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) + " features do not fit the " +
           std::to_string(target.limits.max_local_bytes) + " bytes of workgroup memory";
  if (std::string reason = simt::unsupported_workspace(tile.workspace(d, backward)); !reason.empty())
    return reason;
  return simt::unsupported_iterations(target, tile.iterations(d, backward));
}

Fit fit_tile(const Tile& tile, const AttentionDims& d, bool backward) {
  return Fit::yes({{"m", tile.shape.m},
                   {"n", tile.shape.n},
                   {"k", tile.shape.k},
                   {"lanes", tile.lanes},
                   {"subgroups", tile.subgroups},
                   {"keys", tile.keys}},
                  tile.workspace(d, backward));
}

std::string unsupported_dtype(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_cooperative(target, call.inputs[0].dtype); !reason.empty())
    return reason;
  if (attention_dims(call).rng_state >= 0) return "drops no probabilities";
  return simt::unsupported_attention_size(call);
}

// Every tile the device has room for, what should be fastest first; `why` not, where there is none. `all`:
// with every size of subgroup.
std::vector<Tile> tiles(const CallView& call, const hal::DeviceInfo& target, bool backward, bool all,
                        std::string& why) {
  std::vector<Tile> result;
  if (why = unsupported_dtype(call, target); !why.empty()) return result;
  const AttentionDims d = attention_dims(call);
  // Emulated matrices are compiled element by element.
  const std::int64_t max_keys = target.is_cpu ? 16 : 64;
  for (const hal::MatrixShape& shape : simt::matrix_shapes(target, call.inputs[0].dtype)) {
    std::vector<std::int64_t> lane_choices = subgroup_choices(target, shape);
    if (!all) lane_choices.resize(1);
    for (const std::int64_t lanes : lane_choices)
      for (const std::int64_t subgroups : {4, 2, 8, 1})
        for (std::int64_t keys = max_keys; keys >= 16; keys /= 2) {
          const Tile tile{shape, lanes, subgroups, keys};
          if (why = unsupported_tile(tile, d, target, backward); why.empty()) result.push_back(tile);
        }
  }
  return result;
}

template <bool kBackward>
Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  const std::vector<Tile> all = tiles(call, target, kBackward, false, why);
  if (all.empty()) return Fit::no(why);
  const AttentionDims d = attention_dims(call);
  const std::int64_t rows = kBackward ? std::max(d.s, d.t) : d.s;
  // The first of which no subgroup would be idle.
  const auto chosen = std::find_if(all.begin(), all.end(),
                                   [&](const Tile& tile) { return tile.rows() < rows + tile.shape.m; });
  return fit_tile(chosen == all.end() ? all.back() : *chosen, d, kBackward);
}

template <bool kBackward>
std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::string why;
  std::vector<Fit> result;
  const AttentionDims d = attention_dims(call);
  for (const Tile& tile : tiles(call, target, kBackward, true, why))
    result.push_back(fit_tile(tile, d, kBackward));
  return result;
}

Tile chosen_tile(const EncodeArgs& args) {
  const auto& p = args.choice.params;
  const auto extent = [&](const char* name) { return static_cast<std::int32_t>(p.at(name)); };
  return {{extent("m"), extent("n"), extent("k"), args.call.inputs[0].dtype, hal::DType::f32},
          p.at("lanes"),
          p.at("subgroups"),
          p.at("keys")};
}

// A kernel over own rows of `heads` heads, `length` rows each.
simt::Launch over_rows(const EncodeArgs& args, const AttentionDims& d, const std::string& kernel,
                       std::int64_t heads, std::int64_t length, std::int64_t extras_at) {
  const Tile tile = chosen_tile(args);
  simt::Launch command{.kernel = kernel,
                       .defines = simt::matrix_defines(tile.shape, tile.lanes),
                       .width = static_cast<std::uint32_t>(tile.workgroup()),
                       .subgroup = required_subgroup(args.device.info(), tile.lanes)};
  simt::add_bias_and_bitmask_defines(command.defines, d, tile.rows());
  for (const auto& [name, value] :
       {std::pair("SUBGROUPS", tile.subgroups), std::pair("BC", tile.keys), std::pair("D", d.d),
        std::pair("DV", d.dv), std::pair("DP", tile.padded(d.d)), std::pair("DVP", tile.padded(d.dv))})
    command.defines.push_back({name, std::to_string(value)});
  const std::int64_t blocks = ceil_div(length, tile.rows());
  command.groups = simt::grid(d.b * heads * blocks, 1);
  command.constants = simt::attention_constants(d, blocks, heads);
  simt::add_extra_constants(command.constants, d, extras_at);
  return command;
}

void encode(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const std::int64_t rows = chosen_tile(args).rows();
  if (simt::extras_bytes(d, rows) > 0) {
    simt::copy_extras(args, d, 0, rows);
    args.commands.barrier();
  }
  simt::Launch command = over_rows(args, d, "flash_attention_cooperative", d.h, d.s, 0);
  for (std::size_t i = 0; i < 3; ++i)
    command.bindings.push_back(simt::whole_words(hal::reads(args.inputs[i])));
  simt::bind_extras(command, args, d, rows);
  for (const hal::Binding& output : args.outputs)
    command.bindings.push_back(simt::whole_words(hal::writes(output)));
  simt::launch(args, command);
}

void encode_grad(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const std::int64_t extras_at = simt::grad_extras_at(d);
  simt::Launch dq = over_rows(args, d, "flash_attention_cooperative_grad", d.h, d.s, extras_at),
               dkv = over_rows(args, d, "flash_attention_cooperative_grad", d.kv, d.t, extras_at);
  dq.defines.push_back({"COMPUTE_DKV", "0"});
  dkv.defines.push_back({"COMPUTE_DKV", "1"});
  const simt::Launch delta{.kernel = "flash_attention_delta_halves",
                           .defines = {{"BF16", args.call.inputs[0].dtype == hal::DType::bf16 ? "1" : "0"}}};
  simt::launch_grad(args, d, true, chosen_tile(args).rows(), std::move(dq), std::move(dkv), delta);
}

}  // namespace

kernels::Variant flash_attention_cooperative(simt::Pass pass) {
  const bool backward = pass == simt::Pass::backward;
  return {
      .name = "cooperative",
      .kinds = {hal::ProfileKind::gpu},
      .about =
          "16-bit floats on the matrix unit: a subgroup owns rows, keys are streamed past, probabilities in "
          "two parts",
      .fit = backward ? fit<true> : fit<false>,
      .encode = backward ? encode_grad : encode,
      .alternatives = backward ? alternatives<true> : alternatives<false>,
      .low_precision = true,
      .needs_self_test = true};
}

}  // namespace meshloom::backends::vulkan
