// Matmul for Trainium-like profiles: K on the partitions, stationary tiles times moving columns, sums in PSUM.
#include <algorithm>
#include <utility>

#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

constexpr std::int64_t kStrip = 16;  // moving columns of one invocation

std::int64_t stationary_floats(const MatmulDims& d, std::int64_t rows, std::int64_t depth) {
  return d.g * round_up(d.m, rows) * round_up(d.k, depth);
}
std::int64_t stationary_bytes(const MatmulDims& d, std::int64_t rows, std::int64_t depth) {
  return aligned(4 * stationary_floats(d, rows, depth));
}

std::string unsupported_profile(const hal::Profile& profile) {
  const auto& tile = profile.matrix_tile;
  if (tile.m < 4 || tile.m % 4 != 0 || tile.k < 1 || tile.n < kStrip || profile.partitions < 1 ||
      profile.accumulator_banks < 1)
    return "needs partitions, PSUM banks and a matrix unit with a stationary tile, which profile " +
           profile.name + " does not have";
  if (tile.k > profile.partitions || tile.m > profile.partitions)
    return "a stationary tile of " + std::to_string(tile.k) + " x " + std::to_string(tile.m) +
           " is larger than " + std::to_string(profile.partitions) + " partitions";
  if (4ll * tile.k * (tile.m + tile.n) > profile.scratch_bytes)
    return "the stationary and the moving tile do not fit " + std::to_string(profile.scratch_bytes) +
           " bytes of SBUF";
  if (4ll * tile.n * profile.partitions * profile.accumulator_banks > profile.accumulator_bytes)
    return "a moving tile of " + std::to_string(tile.n) + " sums does not fit a PSUM bank of " +
           std::to_string(profile.accumulator_bytes / profile.partitions / profile.accumulator_banks) +
           " bytes per partition";
  return {};
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const MatmulDims d = kernels::matmul_dims(call);
  std::string reason = unsupported_profile(target.profile);
  if (!reason.empty()) return Fit::no(reason);
  const auto& tile = target.profile.matrix_tile;
  if (stationary_floats(d, tile.m, tile.k) >= std::int64_t{1} << 31)
    return Fit::no("indexes with 32 bits, but the stationary tiles have more elements");
  reason = unsupported_matmul(call, target, {1, 1, 1});
  if (!reason.empty()) return Fit::no(reason);
  // A moving tile is split over workgroups, several of which stand for one core of the profile.
  const std::int64_t width = target.is_cpu && target.backend == "opencl" ? 1 : 8;
  const std::int64_t items = d.g * ceil_div(d.m, tile.m) * ceil_div(d.n, kStrip * width);
  const std::int64_t workers = std::max<std::int64_t>(target.profile.cores, target.is_cpu ? 32 : 256);
  // Loop iterations of one invocation for an item: per tile, staging columns and computing 4 rows at a time; then the stores.
  const std::int64_t per_tile = (kStrip + ceil_div(tile.m, 4)) * (tile.k + 1) + 1;
  const std::int64_t end_iterations = 1 + tile.m * (kStrip + 1);
  const std::int64_t rounds = max_rounds(target, per_tile + end_iterations);
  if (rounds == 0)
    return Fit::no(unsupported_iterations(target, static_cast<double>(per_tile + end_iterations)));
  const std::int64_t groups = std::max(std::min(items, workers), ceil_div(items, rounds));
  if (groups > target.limits.max_groups[0]) return Fit::no(unsupported_matmul(call, target, {groups, 1, 1}));
  const std::int64_t taken = ceil_div(items, groups);
  const std::int64_t part = k_depth(target, d.k, tile.k, taken * per_tile, taken * end_iterations);
  return Fit::yes({{"rows", tile.m}, {"depth", tile.k}, {"groups", groups}, {"width", width}, {"part", part}},
                  stationary_bytes(d, tile.m, tile.k) + sums_bytes(d, part) +
                      groups * width * (tile.k + tile.m) * kStrip * 4);
}

void encode(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const auto& p = args.choice.params;
  const std::int64_t rows = p.at("rows"), depth = p.at("depth"), width = p.at("width");
  const std::int64_t row_tiles = ceil_div(d.m, rows), k_tiles = ceil_div(d.k, depth);
  const std::int64_t count = stationary_floats(d, rows, depth), bytes = stationary_bytes(d, rows, depth);
  const std::vector<hal::Define> sizes = {define("TILE_M", rows), define("TILE_K", depth)};
  const hal::Binding stationary = slice(args.workspace, 0, 4 * count);
  const std::uint32_t loaders = elementwise_width(args.device.info());
  launch(args, {.kernel = "matmul_trainium_load",
                .defines = sizes,
                .width = loaders,
                .groups = grid(count, loaders),
                .bindings = {reads(args.inputs[0]), writes(stationary)},
                .constants = {hal::word(count), hal::word(d.m), hal::word(d.k),
                              hal::word(std::int64_t{d.trans_a ? 4 : 0}), hal::word(row_tiles),
                              hal::word(k_tiles)}});
  args.commands.barrier();

  const std::int64_t partial_bytes = sums_bytes(d, p.at("part"));
  hal::Binding scratch =
      slice(args.workspace, bytes + partial_bytes, args.workspace.bytes - bytes - partial_bytes);
  scratch.access = hal::Access::read_write;
  const std::int64_t parts = ceil_div(d.n, kStrip * width);
  for (const KPart& k_part :
       k_parts(args, d, p.at("part"), slice(args.workspace, bytes, 4 * d.g * d.m * d.n))) {
    if (k_part.begin > 0) args.commands.barrier();
    std::vector<hal::Binding> bindings = k_part.bindings;
    bindings[0] = reads(stationary);
    bindings.push_back(scratch);
    std::vector<hal::Define> defines = sizes;
    defines.push_back(k_part.activation);
    launch(args, {.kernel = "matmul_trainium_psum",
                  .defines = std::move(defines),
                  .width = static_cast<std::uint32_t>(width),
                  .groups = matmul_groups({p.at("groups"), 1, 1}),
                  .bindings = std::move(bindings),
                  .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), k_part.flags,
                                hal::word(d.g * row_tiles * parts), hal::word(row_tiles), hal::word(k_tiles),
                                hal::word(parts), hal::word(k_part.begin / depth),
                                hal::word(ceil_div(k_part.end, depth))}});
  }
}

}  // namespace

kernels::Variant matmul_trainium_psum() {
  return {
      .name = "trainium_psum",
      .kinds = {hal::ProfileKind::trainium},
      .about = "stationary tiles with K on the partitions times moving columns, sums in PSUM over all of K",
      .fit = fit,
      .encode = encode};
}

}  // namespace meshloom::backends::simt
