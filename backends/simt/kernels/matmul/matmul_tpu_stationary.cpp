// Matmul for TPU-like profiles: a weight tile stays in the scratchpad of a core, activations stream past it.
#include <algorithm>
#include <utility>

#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

constexpr std::int64_t kStrip = 16;  // columns of one invocation

// Rows whose sums an invocation holds in vector registers; on Vulkan they are spilled, which is cheap.
std::int64_t register_rows(std::int64_t width) { return width == 1 ? 4 : 8; }

// Several workgroups, each with its own tile and rows, stand for one core of the profile, so that a profile with one core
// still uses all cores of the device.
std::int64_t max_workers(const hal::DeviceInfo& target) {
  return std::max<std::int64_t>(target.profile.cores, target.is_cpu ? 16 : 256);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const MatmulDims d = kernels::matmul_dims(call);
  const hal::Profile& profile = target.profile;
  const std::int64_t tile = profile.matrix_tile.n;
  if (tile < kStrip || tile % kStrip != 0 || profile.matrix_tile.k != tile)
    return Fit::no("needs a square weight tile of a multiple of " + std::to_string(kStrip) +
                   "; the matrix unit of " + profile.name + " takes " +
                   std::to_string(profile.matrix_tile.k) + " x " + std::to_string(tile));
  const std::int64_t room = profile.scratch_bytes / (4 * tile) - tile;  // rows of sums beside the tile
  if (room < 8)
    return Fit::no("a weight tile of " + std::to_string(4 * tile * tile) + " bytes and its sums do not fit " +
                   std::to_string(profile.scratch_bytes) + " bytes of scratchpad");
  const std::int64_t workers = max_workers(target), column_tiles = ceil_div(d.n, tile);
  std::int64_t chunk = std::min({round_up(d.m, 8), room / 8 * 8, std::int64_t{512}});
  while (chunk > 32 && d.g * column_tiles * ceil_div(d.m, chunk) < workers) chunk = round_up(chunk / 2, 8);
  const std::int64_t items = d.g * column_tiles * ceil_div(d.m, chunk);
  const std::string reason = unsupported_matmul(call, target, {1, 1, 1});
  if (!reason.empty()) return Fit::no(reason);
  const std::int64_t width = target.is_cpu && target.backend == "opencl" ? 1 : 8;
  // Loop iterations of one invocation for an item: per tile, staging the weights and streaming rows; then the stores.
  const std::int64_t strips = ceil_div(tile / kStrip, width);
  const std::int64_t per_tile = strips * (kStrip + ceil_div(chunk, register_rows(width))) * (tile + 1);
  const std::int64_t end_iterations = 1 + strips * (1 + chunk * (kStrip + 1));
  const std::int64_t rounds = max_rounds(target, per_tile + end_iterations);
  if (rounds == 0)
    return Fit::no(unsupported_iterations(target, static_cast<double>(per_tile + end_iterations)));
  const std::int64_t groups = std::max(std::min(items, workers), ceil_div(items, rounds));
  if (groups > target.limits.max_groups[0]) return Fit::no(unsupported_matmul(call, target, {groups, 1, 1}));
  const std::int64_t taken = ceil_div(items, groups);
  const std::int64_t depth = k_depth(target, d.k, tile, taken * per_tile, taken * end_iterations);
  return Fit::yes({{"tile", tile}, {"chunk", chunk}, {"groups", groups}, {"width", width}, {"depth", depth}},
                  sums_bytes(d, depth) + groups * width * (tile + chunk) * kStrip * 4);
}

void encode(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const auto& p = args.choice.params;
  const std::int64_t tile = p.at("tile"), chunk = p.at("chunk"), width = p.at("width");
  const std::int64_t column_tiles = ceil_div(d.n, tile), chunks = ceil_div(d.m, chunk);
  const std::int64_t depth = p.at("depth"), partial_bytes = sums_bytes(d, depth);
  hal::Binding scratch = slice(args.workspace, partial_bytes, args.workspace.bytes - partial_bytes);
  scratch.access = hal::Access::read_write;
  for (const KPart& k_part : k_parts(args, d, depth, slice(args.workspace, 0, 4 * d.g * d.m * d.n))) {
    if (k_part.begin > 0) args.commands.barrier();
    std::vector<hal::Binding> bindings = k_part.bindings;
    bindings.push_back(scratch);
    launch(args, {.kernel = "matmul_tpu_stationary",
                  .defines = {k_part.activation, define("TILE", tile), define("TM", register_rows(width))},
                  .width = static_cast<std::uint32_t>(width),
                  .groups = matmul_groups({p.at("groups"), 1, 1}),
                  .bindings = std::move(bindings),
                  .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), k_part.flags,
                                hal::word(d.g * column_tiles * chunks), hal::word(column_tiles),
                                hal::word(chunks), hal::word(chunk), hal::word((tile + chunk) * kStrip),
                                hal::word(k_part.begin), hal::word(k_part.end)}});
  }
}

}  // namespace

kernels::Variant matmul_tpu_stationary() {
  return {
      .name = "tpu_stationary",
      .kinds = {hal::ProfileKind::tpu},
      .about =
          "a weight tile stays in a core's scratchpad while rows stream past, so that weights are read once",
      .fit = fit,
      .encode = encode};
}

}  // namespace meshloom::backends::simt
