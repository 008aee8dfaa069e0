// Matmul shaped for TPUs: a weight tile stays in the scratchpad of a core, activations stream past it.
#include <algorithm>
#include <utility>

#include "backends/simt/matmul.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

constexpr std::int64_t kStrip = 16;      // columns of one invocation
constexpr std::int64_t kRowsAtOnce = 4;  // or 8, see encode()

// A core of the profile is played by several workgroups, each with its own tile and rows: a profile with one
// core would leave all but one of the device's idle.
std::int64_t most_workers(const hal::DeviceInfo& target) {
  return std::max<std::int64_t>(target.profile.cores, target.is_cpu ? 16 : 256);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const MatmulDims d = kernels::matmul_dims(call);
  const hal::Profile& profile = target.profile;
  const std::int64_t tile = profile.matrix_tile.n;
  if (tile < kStrip || tile % kStrip != 0 || profile.matrix_tile.k != tile)
    return Fit::no("wants a square weight tile of a multiple of " + std::to_string(kStrip) +
                   "; the matrix unit of " + profile.name + " takes " +
                   std::to_string(profile.matrix_tile.k) + " x " + std::to_string(tile));
  const std::int64_t room = profile.scratch_bytes / (4 * tile) - tile;  // rows of sums beside the tile
  if (room < 8)
    return Fit::no("a weight tile of " + std::to_string(4 * tile * tile) + " bytes and its sums do not fit " +
                   std::to_string(profile.scratch_bytes) + " bytes of scratchpad");
  const std::int64_t workers = most_workers(target), column_tiles = ceil_div(d.n, tile);
  std::int64_t chunk = std::min({round_up(d.m, 8), room / 8 * 8, std::int64_t{512}});
  while (chunk > 32 && d.g * column_tiles * ceil_div(d.m, chunk) < workers) chunk = round_up(chunk / 2, 8);
  const std::int64_t items = d.g * column_tiles * ceil_div(d.m, chunk);
  const std::string reason = matmul_unfit(call, target, {1, 1, 1});
  if (!reason.empty()) return Fit::no(reason);
  const std::int64_t width = target.is_cpu && target.backend == "opencl" ? 1 : 8;
  const std::int64_t groups = std::min(items, workers);
  // As the kernel's loops stand: weights of a strip staged, rows past them, sums out.
  const std::int64_t k_tiles = ceil_div(d.k, tile), rows = std::min(chunk, d.m);
  const std::int64_t strip = (d.k + k_tiles) * (1 + ceil_div(rows, kRowsAtOnce)) + k_tiles + rows * (kStrip + 1);
  const std::string long_loops =
      too_long(target, static_cast<double>(ceil_div(items, groups) * (1 + ceil_div(tile, kStrip * width) * (strip + 1))));
  if (!long_loops.empty()) return Fit::no(long_loops);
  return Fit::yes({{"tile", tile}, {"chunk", chunk}, {"groups", groups}, {"width", width}},
                  groups * width * (tile + chunk) * kStrip * 4);
}

void encode(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const auto& p = args.choice.params;
  const std::int64_t tile = p.at("tile"), chunk = p.at("chunk"), width = p.at("width");
  const std::int64_t column_tiles = ceil_div(d.n, tile), chunks = ceil_div(d.m, chunk);
  std::vector<hal::Binding> bindings = matmul_bindings(args, d);
  bindings.push_back(args.workspace);
  bindings.back().access = hal::Access::read_write;
  launch(args,
         {.kernel = "matmul_tpu_stationary",
          // vector registers of the drivers' code generators: 16 of 4 on OpenCL, spilled cheaply on Vulkan
          .defines = {matmul_activation(d), define("TILE", tile), define("TM", width == 1 ? 4 : 8)},
          .width = static_cast<std::uint32_t>(width),
          .groups = matmul_groups({p.at("groups"), 1, 1}),
          .bindings = std::move(bindings),
          .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k), matmul_flags(d),
                        hal::word(d.g * column_tiles * chunks), hal::word(column_tiles), hal::word(chunks),
                        hal::word(chunk), hal::word((tile + chunk) * kStrip)}});
}

}  // namespace

void add_matmul_tpu_stationary(kernels::Catalog& catalog, const std::string& backend) {
  catalog.add(kernels::Variant{
      .op = "matmul",
      .backend = backend,
      .name = "tpu_stationary",
      .kinds = {hal::ProfileKind::tpu},
      .rank = 10,
      .about = "a weight tile stays in a core's scratchpad while rows stream past: weights are read once",
      .fit = fit,
      .encode = encode});
}

}  // namespace meshloom::backends::simt
