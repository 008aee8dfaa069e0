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

enum class Kernel { forward, dq, dkv };

// Registers of an invocation for sums and own rows, beside which there is room for the rest.
constexpr std::int64_t kHeldRegisters = 128;

// A workgroup of `subgroups`, each with shape.m rows of its own, past which tiles of `keys` rows are
// streamed. Own rows stay in registers as long as they and the sums take no more than `held`.
constexpr std::int64_t kRolledRegisters = 96;  // for both

struct Tile {
  hal::MatrixShape shape;
  std::int64_t lanes, subgroups, keys, held;

  // Features, padded to whole matrices of either operand.
  std::int64_t padded(std::int64_t features) const { return round_up(features, std::max(shape.n, shape.k)); }
  std::int64_t rows() const { return subgroups * shape.m; }
  std::int64_t workgroup() const { return subgroups * lanes; }
  std::int64_t items() const { return shape.m * keys / 8; }  // groups of eight scores of a subgroup

  // An invocation's registers for the sums of a kernel.
  std::int64_t sums(const AttentionDims& d, Kernel kernel) const {
    const std::int64_t features =
        (kernel == Kernel::forward ? 0 : padded(d.d)) + (kernel == Kernel::dq ? 0 : padded(d.dv));
    return features * shape.m / lanes;
  }
  // Whether the own rows of q or k stay in registers beside them, and those of dO or v too. On AMD's unit an invocation holds a
  // whole row of an operand, two features to a register.
  bool holds_x(const AttentionDims& d, Kernel kernel) const {
    return sums(d, kernel) + padded(d.d) / 2 <= held;
  }
  bool holds_y(const AttentionDims& d, Kernel kernel) const {
    return sums(d, kernel) + padded(d.d) / 2 + padded(d.dv) / 2 <= held;
  }

  // An invocation's registers for the next tile.
  std::int64_t on_its_way(const AttentionDims& d) const {
    return 4 *
           (ceil_div(keys * padded(d.d), 8 * workgroup()) + ceil_div(keys * padded(d.dv), 8 * workgroup()));
  }

  // As the kernels lay out their memory, in words of 16 bytes.
  std::int64_t shared_bytes(const AttentionDims& d, Kernel kernel) const {
    const auto stride = [](std::int64_t elements) { return elements / 8 | 1; };
    const auto turned = [&](std::int64_t features) {
      return features * stride(keys) + features / shape.n * 2;
    };
    const std::int64_t x = padded(d.d), y = padded(d.dv), scores = rows() * (keys / 4 + 1);
    const std::int64_t own_x = rows() * stride(x), own_y = rows() * stride(y);
    if (kernel == Kernel::forward) {
      const std::int64_t words = keys * stride(x) + turned(y) + scores + rows() / 4;
      return 16 * (holds_x(d, kernel) ? std::max(words, own_x) : words + own_x);
    }
    std::int64_t words = keys * (stride(x) + stride(y)) + turned(x) + scores;
    if (kernel == Kernel::dkv) words += turned(y) + keys / 2;
    words += (holds_x(d, kernel) ? 0 : own_x) + (holds_y(d, kernel) ? 0 : own_y);
    return 16 * std::max({words, holds_x(d, kernel) ? own_x : 0, holds_y(d, kernel) ? own_y : 0});
  }
  std::int64_t most_shared_bytes(const AttentionDims& d, bool backward) const {
    if (!backward) return shared_bytes(d, Kernel::forward);
    return std::max(shared_bytes(d, Kernel::dq), shared_bytes(d, Kernel::dkv));
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
  if (tile.keys % shape.n != 0 || tile.keys % shape.k != 0 || tile.items() % tile.lanes != 0 ||
      tile.lanes % (tile.keys / 8) != 0)
    return "tiles of " + std::to_string(tile.keys) + " keys are not whole matrices of " + to_string(shape);
  if (tile.sums(d, backward ? Kernel::dkv : Kernel::forward) > simt::max_sums(tile.lanes))
    return "heads of " + std::to_string(d.d) + " and " + std::to_string(d.dv) +
           " features do not fit the registers of a subgroup of " + std::to_string(tile.lanes);
  // ANV spills hundreds of registers of what is on its way too.
  if (simt::needs_rolled_sums(target) &&
      tile.sums(d, backward ? Kernel::dkv : Kernel::forward) + tile.on_its_way(d) > kRolledRegisters)
    return "the registers of a subgroup have no room for tiles of " + std::to_string(tile.keys) +
           " keys by " + std::to_string(tile.subgroups) + " subgroups";
  if (tile.workgroup() > target.limits.max_workgroup)
    return "the driver's workgroups have at most " + std::to_string(target.limits.max_workgroup) +
           " invocations";
  if (tile.most_shared_bytes(d, backward) > target.limits.max_local_bytes)
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
                   {"keys", tile.keys},
                   {"held", tile.held}},
                  tile.workspace(d, backward));
}

std::string unsupported_call(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_cooperative(target, call.inputs[0].dtype); !reason.empty())
    return reason;
  if (attention_dims(call).rng_state >= 0) return "drops no probabilities";
  for (const char* feature : {"subgroup-shuffle", "subgroup-arithmetic", "subgroup-vote"})
    if (!target.has(feature)) return "needs the feature " + std::string(feature);
  return simt::unsupported_attention_size(call);
}

// Every tile the device has room for, what should be fastest first; `why` not, where there is none. `all`:
// with every size of subgroup, and with own rows in workgroup memory too.
std::vector<Tile> tiles(const CallView& call, const hal::DeviceInfo& target, bool backward, bool all,
                        std::string& why) {
  std::vector<Tile> result;
  if (why = unsupported_call(call, target); !why.empty()) return result;
  const AttentionDims d = attention_dims(call);
  // Emulated matrices are compiled element by element.
  const std::vector<std::int64_t> key_choices = target.is_cpu ? std::vector<std::int64_t>{16}
                                                : simt::needs_rolled_sums(target)
                                                    ? std::vector<std::int64_t>{32, 16}
                                                    : std::vector<std::int64_t>{32, 16, 64};
  const std::vector<std::int64_t> subgroup_numbers = target.is_cpu ? std::vector<std::int64_t>{4, 2, 8, 1}
                                                     : simt::needs_rolled_sums(target)
                                                         ? std::vector<std::int64_t>{16, 8, 4}
                                                         : std::vector<std::int64_t>{8, 4, 2, 1};
  for (const hal::MatrixShape& shape : simt::matrix_shapes(target, call.inputs[0].dtype)) {
    std::vector<std::int64_t> sizes = subgroup_choices(target, shape);
    if (!all) sizes.resize(1);
    for (const std::int64_t lanes : sizes)
      for (const std::int64_t subgroups : subgroup_numbers)
        for (const std::int64_t keys : key_choices)
          for (const std::int64_t held : {kHeldRegisters, std::int64_t{0}}) {
            // ANV has sums twice in registers, and no room for more.
            if ((held == 0) != simt::needs_rolled_sums(target) && !all) continue;
            const Tile tile{shape, lanes, subgroups, keys, held};
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
  // What CPU drivers do only where it is asked for, so that tests run it.
  if (target.is_cpu && !result.empty()) {
    result.push_back(result.front());
    result.back().params["rolled"] = 1;
  }
  return result;
}

Tile chosen_tile(const EncodeArgs& args) {
  const auto& p = args.choice.params;
  const auto extent = [&](const char* name) { return static_cast<std::int32_t>(p.at(name)); };
  return {{extent("m"), extent("n"), extent("k"), args.call.inputs[0].dtype, hal::DType::f32},
          p.at("lanes"),
          p.at("subgroups"),
          p.at("keys"),
          p.at("held")};
}

// A kernel over own rows of `heads` heads, `length` rows each.
simt::Launch over_rows(const EncodeArgs& args, const AttentionDims& d, Kernel kernel, std::int64_t heads,
                       std::int64_t length, std::int64_t extras_at) {
  const Tile tile = chosen_tile(args);
  const bool forward = kernel == Kernel::forward;
  simt::Launch command{.kernel = forward ? "flash_attention_cooperative" : "flash_attention_cooperative_grad",
                       .defines = simt::matrix_defines(tile.shape, tile.lanes),
                       .width = static_cast<std::uint32_t>(tile.workgroup()),
                       .subgroup = required_subgroup(args.device.info(), tile.lanes)};
  simt::add_bias_and_bitmask_defines(command.defines, d, tile.rows());
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>("SUBGROUPS", tile.subgroups),
                                    {"BC", tile.keys},
                                    {"D", d.d},
                                    {"DV", d.dv},
                                    {"DP", tile.padded(d.d)},
                                    {"DVP", tile.padded(d.dv)},
                                    {"OWN_X_HELD", tile.holds_x(d, kernel)},
                                    {"OWN_Y_HELD", tile.holds_y(d, kernel)},
                                    {"PARTS", 2},
                                    {"PRESENT", simt::present_options(d)}})
    command.defines.push_back(simt::define(name, value));
  command.defines.push_back({"SOFT_CAP", d.soft_cap > 0 ? "true" : "false"});
  if (forward) {
    command.defines.push_back(simt::define("POSITIVE_SCALE", d.scale > 0));
  } else {
    command.defines.push_back(simt::define("COMPUTE_DKV", kernel == Kernel::dkv));
    command.defines.push_back(simt::define("WIDE_ROWS", d.s % 4 == 0));
  }
  if (simt::has_rolled_sums(args.choice.params, args.device.info())) {
    command.defines.push_back({"ROLLED", "1"});
    command.aliased = forward ? 0b111u : 0b1111u;  // as in matmul_gpu_tile
  }
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
  simt::Launch command = over_rows(args, d, Kernel::forward, d.h, d.s, 0);
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
  simt::Launch dq = over_rows(args, d, Kernel::dq, d.h, d.s, extras_at),
               dkv = over_rows(args, d, Kernel::dkv, d.kv, d.t, extras_at);
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
