// Attention with one row per lane: three variants of the same kernels.
//   lane        keys from device memory; for any device, and the fastest on CPU drivers
//   staged      gpu_tile on OpenCL of CPUs: keys and values streamed through workgroup memory, one workgroup per query tile
//   tpu_splash  a few workgroups walk a schedule of mask blocks that is made here
#include <algorithm>
#include <cmath>

#include "backends/simt/kernels/flash_attention/flash_attention_common.h"
#include "backends/simt/variants.h"

namespace meshloom::backends::simt {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

enum class Mode { lane, tile, splash };

constexpr std::int64_t kMaxTile = 32;  // keys per staged tile
constexpr int kGroupsPerCore = 8;      // workgroups that stand for one core of the profile

// The keys of a tile whose K and V fit workgroup memory, a multiple of KEYS (at most 4); 0 = none fits.
std::int64_t tile_of(const AttentionDims& dims, const hal::DeviceInfo& target) {
  const std::int64_t room = workgroup_bytes(target);
  std::int64_t tile = kMaxTile;
  while (tile >= 4 && tile * (dims.d + dims.dv) * 4 > room) tile /= 2;
  return tile >= 4 ? tile : 0;
}

// The edge of a mask block: that of the matrix unit, so that a block of scores is one of its tiles.
std::int64_t block_of(const hal::Profile& profile) {
  return profile.matrix_tile.m > 0 ? profile.matrix_tile.m : 128;
}

std::int64_t schedule_bytes(const AttentionDims& dims, std::int64_t block) {
  return aligned(ceil_div(dims.s, block) * 8);
}

// Loop iterations of a step of KEYS keys, or of a query; the search for the next visible one takes two more. Mesa's OpenCL
// does not unroll loops over features.
double step_iterations(const AttentionDims& d, const hal::DeviceInfo& target) {
  const auto width = static_cast<double>(std::max(d.d, d.dv));
  const double features = target.backend == "opencl" ? 4 * width + 8 : width <= 64 ? 2 : 3 * width + 4;
  return features + (d.attention_bitmask >= 0 ? 2 : 0);
}

// Loop iterations of one invocation of the longest kernel (see max_iterations).
template <Mode kMode>
double iterations(const AttentionDims& d, const hal::DeviceInfo& target, bool backward, std::int64_t block,
                  std::int64_t groups) {
  const auto rows = static_cast<double>(lanes_of(target).rows());
  const auto width = static_cast<double>(std::max(d.d, d.dv));
  const auto keys = static_cast<double>(d.t), queries = static_cast<double>(d.s);
  const double step = step_iterations(d, target);
  double row_block = keys * step / (width <= 64 ? 4 : width <= 128 ? 2 : 1) + 4 * width;
  if (backward) row_block = std::max(row_block, queries * static_cast<double>(d.h / d.kv) * step + 8 * width);
  if (kMode == Mode::tile)
    row_block += std::max(keys, queries * static_cast<double>(d.h / d.kv)) * 2 * width / rows;
  if (d.q_segments >= 0) row_block += rows;
  if (kMode != Mode::splash) return row_block;
  const double blocks = static_cast<double>(d.b * d.h * ceil_div(std::max(d.s, d.t), block));
  return std::ceil(blocks / static_cast<double>(groups)) * std::ceil(static_cast<double>(block) / rows) *
         row_block;
}

template <Mode kMode>
Fit fit_any(const CallView& call, const hal::DeviceInfo& target, bool backward) {
  if (const std::string reason = unsupported_attention(call); !reason.empty()) return Fit::no(reason);
  const AttentionDims dims = attention_dims(call);
  const bool extras = has_extras(dims);
  const std::int64_t rows = lanes_of(target).rows();
  const std::int64_t workspace = backward ? grad_workspace(dims, extras, rows) : extras_bytes(dims, rows);
  if (const std::string reason = unsupported_workspace(workspace); !reason.empty()) return Fit::no(reason);
  const std::int64_t block = block_of(target.profile);
  const std::int64_t groups = std::max(1, target.profile.cores) * kGroupsPerCore;
  if (const std::string reason =
          unsupported_iterations(target, iterations<kMode>(dims, target, backward, block, groups));
      !reason.empty())
    return Fit::no(reason);
  if constexpr (kMode == Mode::tile) {
    const std::int64_t tile = tile_of(dims, target);
    if (tile == 0)
      return Fit::no("a tile of 4 keys and values of head dim " + std::to_string(dims.d) +
                     " does not fit the workgroup memory of " + std::to_string(workgroup_bytes(target)) +
                     " bytes");
    return Fit::yes({{"tile", tile}}, workspace);
  }
  if constexpr (kMode == Mode::splash) {
    if (dims.prefix >= 0 || dims.query_offset >= 0)
      return Fit::no(
          "its schedule is made on the host, where the values of prefix and query_offset are not known");
    if (dims.attention_bitmask >= 0 && block % rows != 0)
      return Fit::no("blocks of " + std::to_string(block) + " rows are not a multiple of the " +
                     std::to_string(rows) + " rows of a block of the bitmask's summary");
    const std::int64_t need = 2 * block * (dims.d + dims.dv) * 4;
    if (need > target.profile.scratch_bytes)
      return Fit::no("blocks of " + std::to_string(block) + " rows of q, k, v and o need " +
                     std::to_string(need) + " bytes of scratchpad; profile " + target.profile.name + " has " +
                     std::to_string(target.profile.scratch_bytes));
    return Fit::yes({{"block", block}, {"groups", groups}},
                    workspace + (backward ? 0 : schedule_bytes(dims, block)));
  }
  return Fit::yes({}, workspace);
}
template <Mode kMode>
Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_any<kMode>(call, target, false);
}
template <Mode kMode>
Fit fit_grad(const CallView& call, const hal::DeviceInfo& target) {
  return fit_any<kMode>(call, target, true);
}

// The launch of a kernel over rows of `heads` heads with `length` rows each.
template <Mode kMode>
Launch over_rows(const EncodeArgs& args, const AttentionDims& dims, const std::string& kernel,
                 std::int64_t heads, std::int64_t length, std::int64_t extras_at) {
  const Lanes lanes = lanes_of(args.device.info());
  Launch command{.kernel = kernel,
                 .defines = attention_defines(dims, lanes, kMode == Mode::tile, kMode == Mode::splash),
                 .width = lanes.width};
  const auto& params = args.choice.params;
  std::int64_t block = lanes.rows();
  if constexpr (kMode == Mode::tile) command.defines.push_back({"TILE", std::to_string(params.at("tile"))});
  if constexpr (kMode == Mode::splash) {
    block = params.at("block");
    command.defines.push_back({"BLOCK", std::to_string(block)});
  }
  const std::int64_t blocks = ceil_div(length, block), items = dims.b * heads * blocks;
  command.groups = grid(items, 1);
  if constexpr (kMode == Mode::splash)
    command.groups = {static_cast<std::uint32_t>(std::min(items, params.at("groups"))), 1, 1};
  command.constants = attention_constants(dims, blocks, heads);
  if (has_extras(dims)) add_extra_constants(command.constants, dims, extras_at);
  return command;
}

// Records the schedule of a full or causal mask: for each query block the number of key blocks that every row sees, and the end
// of the key blocks that are visited.
void write_schedule(const EncodeArgs& args, const AttentionDims& dims, std::int64_t block,
                    hal::Binding schedule) {
  for (std::int64_t q = 0; q < ceil_div(dims.s, block); ++q) {
    const std::int64_t first = q * block, last = std::min(first + block, dims.s) - 1;
    const std::int64_t full = dims.mask().window(first).end / block,
                       visited = ceil_div(dims.mask().window(last).end, block);
    args.commands.fill(writes(slice(schedule, q * 8, 4)), hal::word(full), args.label);
    args.commands.fill(writes(slice(schedule, q * 8 + 4, 4)), hal::word(visited), args.label);
  }
}

template <Mode kMode>
void encode(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  Launch command = over_rows<kMode>(args, dims, "flash_attention", dims.h, dims.s, 0);
  for (std::size_t i = 0; i < 3; ++i) command.bindings.push_back(reads(args.inputs[i]));
  const std::int64_t rows = lanes_of(args.device.info()).rows(), extras = extras_bytes(dims, rows);
  if (extras > 0) copy_extras(args, dims, 0, rows);
  if constexpr (kMode == Mode::splash) {
    const std::int64_t block = args.choice.params.at("block");
    const hal::Binding schedule = slice(args.workspace, extras, ceil_div(dims.s, block) * 8);
    write_schedule(args, dims, block, schedule);
    command.bindings.push_back(reads(schedule));
  }
  if (kMode == Mode::splash || extras > 0) args.commands.barrier();
  if (has_extras(dims)) bind_extras(command, args, dims, rows);
  for (const hal::Binding& binding : args.outputs) command.bindings.push_back(writes(binding));
  launch(args, command);
}

// The backward kernels skip empty blocks by the first and the last row that a causal mask leaves.
template <Mode kMode>
void encode_grad(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  const std::int64_t extras_at = grad_extras_at(dims);
  launch_grad(args, dims, has_extras(dims), lanes_of(args.device.info()).rows(),
              over_rows<kMode>(args, dims, "flash_attention_dq", dims.h, dims.s, extras_at),
              over_rows<kMode>(args, dims, "flash_attention_dkv", dims.kv, dims.t, extras_at));
}

// Loop iterations of an invocation that sums the gradient of `span` keys of a bias over the batch rows and heads that share it.
double bias_iterations(const AttentionDims& d, const hal::DeviceInfo& target, std::int64_t span) {
  const auto width = static_cast<double>(std::max(d.d, d.dv)), keys = static_cast<double>(span);
  double once = keys * step_iterations(d, target) / (width <= 64 ? 4 : width <= 128 ? 2 : 1);
  once += width <= 64 ? 4 : 4 * width;
  if (d.q_segments >= 0) once += static_cast<double>(lanes_of(target).rows());
  return static_cast<double>((d.bias_rows ? 1 : d.b) * (d.bias_heads ? 1 : d.h)) * once + 2 * keys;
}

Fit fit_bias_grad(const CallView& call, const hal::DeviceInfo& target) {
  if (const std::string reason = unsupported_attention(call); !reason.empty()) return Fit::no(reason);
  const AttentionDims d = attention_dims(call);
  const std::int64_t workspace = grad_workspace(d, true, lanes_of(target).rows());
  if (const std::string reason = unsupported_workspace(workspace); !reason.empty()) return Fit::no(reason);
  // A multiple of KEYS. Queries are read once per span, but GPUs need many invocations.
  std::int64_t span = target.is_cpu ? 128 : 32;
  while (span > 4 && !unsupported_iterations(target, bias_iterations(d, target, span)).empty()) span /= 2;
  if (const std::string reason = unsupported_iterations(target, bias_iterations(d, target, span));
      !reason.empty())
    return Fit::no(reason);
  return Fit::yes({{"span", span}}, workspace);
}

void encode_bias_grad(const EncodeArgs& args) {
  const AttentionDims dims = attention_dims(args.call);
  Launch command =
      over_rows<Mode::lane>(args, dims, "flash_attention_dq", dims.h, dims.s, grad_extras_at(dims));
  launch_bias_grad(args, dims, lanes_of(args.device.info()).rows(), args.choice.params.at("span"), command);
}

template <Mode kMode>
kernels::Variant variant(Pass pass, std::string name, std::vector<hal::ProfileKind> kinds,
                         std::string about) {
  const bool backward = pass == Pass::backward;
  return {.name = std::move(name),
          .kinds = std::move(kinds),
          .about = std::move(about),
          .fit = backward ? fit_grad<kMode> : fit<kMode>,
          .encode = backward ? encode_grad<kMode> : encode<kMode>};
}

}  // namespace

kernels::Variant flash_attention_lane(Pass pass) {
  return variant<Mode::lane>(
      pass, "lane", {},
      "one SIMD lane per row, keys from device memory, no barrier; the fastest on CPU drivers");
}

kernels::Variant flash_attention_staged(Pass pass) {
  return variant<Mode::tile>(
      pass, "gpu_tile", {hal::ProfileKind::gpu},
      "one workgroup per query tile, keys streamed through workgroup memory and read once per tile");
}

kernels::Variant flash_attention_tpu_splash(Pass pass) {
  return variant<Mode::splash>(
      pass, "tpu_splash", {hal::ProfileKind::tpu},
      "a few workgroups walk a schedule of mask blocks made on the host, which skips empty blocks");
}

kernels::Variant flash_attention_lane_bias_grad() {
  return {.name = "lane",
          .about = "one SIMD lane per row of a span of keys, summed over batch rows and heads in order",
          .fit = fit_bias_grad,
          .encode = encode_bias_grad};
}

}  // namespace meshloom::backends::simt
