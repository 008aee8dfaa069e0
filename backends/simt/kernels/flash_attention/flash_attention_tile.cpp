// Attention for GPUs: rows are spread over invocations, which hold tiles of scores and of sums in registers.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "backends/simt/kernels/flash_attention/flash_attention_common.h"
#include "backends/simt/variants.h"

namespace meshloom::backends::simt {
namespace {

using kernels::AttentionDims;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// What a workgroup takes (attention_tile.inc): `spread` invocations share `rows` own rows, and each has `columns` of the streamed
// ones.
struct Tile {
  std::int64_t workgroup, rows, columns, spread;
  std::int64_t fixed_chunk = 0;  // 0: chunk() chooses

  std::int64_t own() const { return workgroup / spread * rows; }
  std::int64_t streamed() const { return spread * columns; }
  // Vectors of four features per chunk of a product: few enough for workgroup memory, and of as little padding as possible.
  std::int64_t chunk(const AttentionDims& d) const {
    if (fixed_chunk > 0) return fixed_chunk;
    const std::int64_t vectors = ceil_div(std::max(d.d, d.dv), 4);
    std::int64_t best = std::min<std::int64_t>(vectors, 10);
    for (std::int64_t chunk = best - 1; chunk >= 5; --chunk)
      if (round_up(vectors, chunk) < round_up(vectors, best)) best = chunk;
    return best;
  }
  // Streamed rows whose features are in workgroup memory at a time.
  std::int64_t part(std::int64_t width) const {
    std::int64_t part = streamed();
    while (part > 4 && (streamed() % part != 0 || part * ceil_div(width, 4) > 640)) part -= 4;
    return part;
  }
  // `apart`: weights have their own place.
  std::int64_t shared_bytes(const AttentionDims& d, bool apart) const {
    const std::int64_t scores = own() * chunk(d) + streamed() * (chunk(d) | 1);
    const std::int64_t parts = std::max(part(d.d) * ceil_div(d.d, 4), part(d.dv) * ceil_div(d.dv, 4));
    const std::int64_t weights = own() * streamed() / 4;
    const std::int64_t segments = d.q_segments >= 0 ? 4 * std::max(own(), streamed()) : 0;
    return 16 * (apart ? std::max(scores, parts) + weights
                       : std::max(scores, weights + parts) + workgroup * rows / 4) +
           segments;
  }
  std::map<std::string, std::int64_t> params() const {
    std::map<std::string, std::int64_t> all{
        {"workgroup", workgroup}, {"rows", rows}, {"columns", columns}, {"spread", spread}};
    if (fixed_chunk > 0) all["chunk"] = fixed_chunk;
    return all;
  }
  static Tile of(const std::map<std::string, std::int64_t>& p) {
    const auto chunk = p.find("chunk");
    return {p.at("workgroup"), p.at("rows"), p.at("columns"), p.at("spread"),
            chunk == p.end() ? 0 : chunk->second};
  }
};

// Loop iterations of one invocation of the longest kernel (see max_iterations).
double tile_iterations(const AttentionDims& d, const Tile& tile, bool backward) {
  const double chunks = static_cast<double>(ceil_div(ceil_div(d.d, 4), tile.chunk(d)) +
                                            ceil_div(ceil_div(d.dv, 4), tile.chunk(d)));
  const auto streamed = static_cast<double>(tile.streamed());
  double once = chunks * static_cast<double>(1 + tile.chunk(d)) + 2 * (streamed / 2);
  if (d.q_segments >= 0) once += streamed + 2;
  const double tiles_of_keys = static_cast<double>(ceil_div(d.t, tile.streamed()));
  const double tiles_of_queries = static_cast<double>(ceil_div(d.s, tile.streamed()) * (d.h / d.kv));
  return (backward ? std::max(tiles_of_keys, tiles_of_queries) : tiles_of_keys) * once +
         static_cast<double>(d.q_segments >= 0 ? tile.own() : 0);
}

// Tiles of ROLLED (attention_tile.inc) for heads of up to so many vectors: what ANV's compiler keeps in 128 registers and
// multiplies most with. Forward an invocation may have two vectors of sums per row, backward one. What is on its way takes
// few registers where workgroups are large, and its loads stay before the products where all invocations have as many.
struct RolledTile {
  std::int64_t vectors;
  Tile tile;
};
constexpr RolledTile kRolledForward[] = {
    {8, {256, 4, 4, 8, 4}},   {12, {384, 4, 4, 12, 4}}, {16, {256, 4, 4, 8, 4}},  {20, {400, 4, 4, 20, 10}},
    {24, {384, 4, 4, 12, 6}}, {28, {448, 4, 4, 28, 7}}, {32, {512, 4, 4, 16, 8}}, {64, {512, 4, 4, 32, 8}}};
constexpr RolledTile kRolledBackward[] = {{8, {256, 4, 4, 8, 8}},   {16, {256, 4, 4, 16, 8}},
                                          {20, {400, 4, 4, 20, 5}}, {24, {384, 4, 4, 24, 4}},
                                          {32, {512, 4, 4, 32, 4}}, {64, {512, 4, 4, 64, 2}}};

Tile rolled_tile(const AttentionDims& d, const hal::DeviceInfo& target, bool backward) {
  const std::int64_t vectors = ceil_div(std::max(d.d, d.dv), 4);
  const auto all = backward ? std::span<const RolledTile>(kRolledBackward) : kRolledForward;
  const auto found =
      std::find_if(all.begin(), all.end() - 1, [&](const RolledTile& row) { return vectors <= row.vectors; });
  Tile tile = found->tile;
  while (tile.workgroup > tile.spread && (tile.workgroup > max_invocations(target) ||
                                          tile.shared_bytes(d, backward) > workgroup_bytes(target)))
    tile.workgroup = tile.workgroup / 2 / tile.spread * tile.spread;
  return tile;
}

// Registers hold rows x (columns + 4 x vectors) numbers, so that wide heads are spread over more invocations. The compilers of
// OpenCL drivers have room for four vectors per row, and Intel's, whose subgroups are narrow, for two; more invocations then
// share as many rows. A smaller workgroup takes less of its memory.
Tile tile_for(const AttentionDims& d, const hal::DeviceInfo& target, bool backward) {
  if (needs_rolled_sums(target)) return rolled_tile(d, target, backward);
  std::int64_t spread = std::max(d.d, d.dv) <= 96 ? 8 : 16;
  const auto sums = [&](std::int64_t width) { return ceil_div(ceil_div(width, 4), spread); };
  const bool narrow = has_narrow_subgroups(target);
  if (target.backend == "opencl" && backward)
    while (sums(d.d) + sums(d.dv) > (narrow ? 2 : 4)) spread *= 2;
  if (target.backend == "opencl" && narrow)
    while (sums(d.dv) > 3) spread *= 2;
  Tile tile{};
  const std::int64_t least = target.backend == "opencl" && backward && narrow ? 256 : 128;
  for (std::int64_t workgroup = std::max<std::int64_t>(least, 8 * spread);
       workgroup >= 16 && workgroup >= spread; workgroup /= 2) {
    tile = {workgroup, 4, 4, spread};
    if (workgroup <= max_invocations(target) && tile.shared_bytes(d, false) <= workgroup_bytes(target)) break;
  }
  return tile;
}

template <bool kBackward>
Fit fit_tile(const AttentionDims& d, const hal::DeviceInfo& target, const Tile& tile, bool rolled) {
  const std::int64_t bytes = tile.shared_bytes(d, kBackward && rolled);
  if (tile.workgroup > max_invocations(target) || bytes > workgroup_bytes(target))
    return Fit::no("the smallest tile needs " + std::to_string(bytes) +
                   " bytes of workgroup memory and workgroups of " + std::to_string(tile.workgroup) +
                   "; the device has " + std::to_string(workgroup_bytes(target)) + " and " +
                   std::to_string(max_invocations(target)));
  if (const std::string reason = unsupported_iterations(target, tile_iterations(d, tile, kBackward));
      !reason.empty())
    return Fit::no(reason);
  const std::int64_t workspace =
      kBackward ? grad_workspace(d, has_extras(d), tile.own()) : extras_bytes(d, tile.own());
  if (const std::string reason = unsupported_workspace(workspace); !reason.empty()) return Fit::no(reason);
  return Fit::yes(tile.params(), workspace);
}

template <bool kBackward>
Fit fit_tiles(const CallView& call, const hal::DeviceInfo& target) {
  if (const std::string reason = unsupported_attention(call); !reason.empty()) return Fit::no(reason);
  const AttentionDims d = attention_dims(call);
  return fit_tile<kBackward>(d, target, tile_for(d, target, kBackward), needs_rolled_sums(target));
}

// A kernel over own rows of `heads` heads, `length` rows each.
Launch over_own_rows(const EncodeArgs& args, const AttentionDims& d, const std::string& kernel,
                     std::int64_t heads, std::int64_t length, std::int64_t extras_at) {
  const Tile tile = Tile::of(args.choice.params);
  const bool extras = has_extras(d);
  // Parts of 640 vectors, as those of 80 features would be, make NVIDIA's compiler spill; with smaller ones AMD's waits for loads.
  const hal::DeviceInfo& target = args.device.info();
  const bool rolled = has_rolled_sums(args.choice.params, target);
  const bool small_parts = target.backend == "opencl" && !target.is_cpu && target.limits.subgroup == 32;
  const auto part = [&](std::int64_t width) {
    const std::int64_t rows = tile.part(width);
    return small_parts && rows > 4 && rows * ceil_div(width, 4) > 512 ? rows / 2 : rows;
  };
  Launch command{.kernel = kernel,
                 .defines = {define("D", d.d),
                             define("DV", d.dv),
                             define("EXTRAS", extras),
                             define("PRESENT", present_options(d)),
                             {"SOFT_CAP", d.soft_cap > 0 ? "true" : "false"},
                             define("ROWS", tile.rows),
                             define("COLUMNS", tile.columns),
                             define("SPREAD", tile.spread),
                             define("CHUNK", tile.chunk(d)),
                             define("PART_D", part(d.d)),
                             define("PART_DV", part(d.dv)),
                             define("QUERY_FOURS", d.s % 4 == 0),
                             define("UNROLL_STORES", !args.device.info().is_cpu),
                             define("UNROLLED", target.backend == "vulkan" && !target.is_cpu && !rolled)},
                 .width = static_cast<std::uint32_t>(tile.workgroup)};
  if (rolled) {
    command.defines.push_back({"ROLLED", "1"});
    command.aliased = 0b1111;  // as in matmul_gpu_tile
  }
  if (args.device.info().backend == "opencl") command.defines.push_back({"MOST_REGISTERS", "1"});
  if (d.rng_state >= 0) command.defines.push_back({"DROPOUT", "1"});
  add_bias_and_bitmask_defines(command.defines, d, tile.own());
  const std::int64_t blocks = ceil_div(length, tile.own());
  command.groups = grid(d.b * heads * blocks, 1);
  command.constants = attention_constants(d, blocks, heads);
  if (extras) add_extra_constants(command.constants, d, extras_at);
  return command;
}

void encode_tiles(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const std::int64_t rows = Tile::of(args.choice.params).own();
  if (extras_bytes(d, rows) > 0) {
    copy_extras(args, d, 0, rows);
    args.commands.barrier();
  }
  Launch command = over_own_rows(args, d, "flash_attention_tile", d.h, d.s, 0);
  for (std::size_t i = 0; i < 3; ++i) command.bindings.push_back(reads(args.inputs[i]));
  if (has_extras(d)) bind_extras(command, args, d, rows);
  for (const hal::Binding& output : args.outputs) command.bindings.push_back(writes(output));
  launch(args, command);
}

void encode_tiles_grad(const EncodeArgs& args) {
  const AttentionDims d = attention_dims(args.call);
  const std::int64_t extras_at = grad_extras_at(d);
  Launch dq = over_own_rows(args, d, "flash_attention_tile_grad", d.h, d.s, extras_at),
         dkv = over_own_rows(args, d, "flash_attention_tile_grad", d.kv, d.t, extras_at);
  dq.defines.push_back(define("COMPUTE_DKV", 0));
  dkv.defines.push_back(define("COMPUTE_DKV", 1));
  launch_grad(args, d, has_extras(d), Tile::of(args.choice.params).own(), std::move(dq), std::move(dkv));
}

// OpenCL's drivers for CPUs run the invocations of a workgroup in loops, from barrier to barrier, and are faster with the staged
// kernels, which have fewer of both.
bool prefers_staged(const hal::DeviceInfo& target) { return target.backend == "opencl" && target.is_cpu; }

template <Pass kPass>
Fit fit_either(const CallView& call, const hal::DeviceInfo& target) {
  return prefers_staged(target) ? flash_attention_staged(kPass).fit(call, target)
                                : fit_tiles<kPass == Pass::backward>(call, target);
}

// OpenCL's drivers take either. What Vulkan's on the CPU do only where it is asked for, so that tests run it, is what ANV gets.
template <Pass kPass>
std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> all;
  if (target.backend == "vulkan" && target.is_cpu && unsupported_attention(call).empty()) {
    constexpr bool kBackward = kPass == Pass::backward;
    const AttentionDims d = attention_dims(call);
    Fit fit = fit_tile<kBackward>(d, target, rolled_tile(d, target, kBackward), true);
    fit.params["rolled"] = 1;
    if (fit.ok) all.push_back(std::move(fit));
  }
  if (target.backend != "opencl") return all;
  for (Fit fit :
       {flash_attention_staged(kPass).fit(call, target), fit_tiles<kPass == Pass::backward>(call, target)})
    if (fit.ok) all.push_back(std::move(fit));
  return all;
}

template <Pass kPass>
void encode_either(const EncodeArgs& args) {
  if (!args.choice.params.count("spread")) return flash_attention_staged(kPass).encode(args);
  kPass == Pass::backward ? encode_tiles_grad(args) : encode_tiles(args);
}

}  // namespace

kernels::Variant flash_attention_gpu_tile(Pass pass) {
  const bool backward = pass == Pass::backward;
  return {
      .name = "gpu_tile",
      .kinds = {hal::ProfileKind::gpu},
      .about =
          "one workgroup per query tile, keys streamed through workgroup memory and read once per tile; GPUs "
          "spread a row over invocations, OpenCL on CPUs gives each a row",
      .fit = backward ? fit_either<Pass::backward> : fit_either<Pass::forward>,
      .encode = backward ? encode_either<Pass::backward> : encode_either<Pass::forward>,
      .alternatives = backward ? alternatives<Pass::backward> : alternatives<Pass::forward>};
}

}  // namespace meshloom::backends::simt
