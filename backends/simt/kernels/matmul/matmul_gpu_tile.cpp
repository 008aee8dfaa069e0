// Matmul for GPUs: many workgroups, tiles staged in workgroup memory, register blocks.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/simt/kernels/matmul/split_k.h"
#include "kernels/core/contract.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;

struct Tile {
  std::int64_t bm, bn, bk, tm, tn;
  std::int64_t workgroup() const { return (bm / tm) * (bn / tn); }
  // Both tiles, and the four numbers of a tile of groups (own_rows.inc).
  std::int64_t shared_bytes() const { return 4 * bk * (bm + 4 + bn + 4) + 4 * 4; }
  // Loop iterations of one invocation for a step of bk along K: the copies of both tiles, where they are not unrolled, then bk
  // products.
  std::int64_t iterations() const {
    return ceil_div(bm * bk, workgroup()) + ceil_div(bn * bk, workgroup()) + bk + 1;
  }
  std::array<std::int64_t, 3> groups(const MatmulDims& d, const TileUse& use) const {
    return {ceil_div(d.n, bn), use.tiles(d.m, bm), d.g};
  }
  Tiles tiles(const Product& product, const hal::DeviceInfo& target) const {
    constexpr double kLoad = 3;  // of an invocation from workgroup memory, by RDNA3's
    return {.groups = groups(product.dims, product.use),
            .step = bk,
            .per_step = iterations(),
            .fixed = product.use.row_groups > 0 ? kGroupSearch : 0,
            .elements = bm * bn,
            .rate = tile_rate(target, hal::DType::f32, {{tm, tn, kLoad}})};
  }
};

// The largest first. Large tiles read less; small tiles leave work for every core.
constexpr Tile kTiles[] = {
    {128, 128, 16, 8, 8}, {64, 128, 16, 8, 8}, {64, 64, 16, 4, 4}, {32, 64, 16, 4, 4}, {32, 32, 16, 4, 4}};
// With that of GPUs whose subgroups share rows.
constexpr Tile kSharedTiles[] = {{256, 128, 16, 8, 8}, kTiles[0], kTiles[1], kTiles[2], kTiles[3], kTiles[4]};
// On CPU drivers every invocation at a barrier costs time: few invocations with large register blocks.
constexpr Tile kHostTiles[] = {{64, 64, 16, 8, 8}, {32, 32, 16, 8, 4}, {16, 16, 16, 4, 4}};

// True where a tile is much larger than the matrix: by a power of two or more.
bool wider_than(std::int64_t edge, std::int64_t extent) { return edge >= 2 * extent && edge > 32; }

bool fits(const hal::DeviceInfo& target, const Tile& tile, TileUse use) {
  return tile.shared_bytes() + tile.bn * use.more_per_column <= workgroup_bytes(target) &&
         tile.workgroup() <= max_invocations(target);
}

// The subgroups that kernels may ask for where subgroups are narrow: those of all Intel's GPUs.
constexpr std::int64_t kSubgroup = 16;
static_assert(kSharedTiles[0].bn / kSharedTiles[0].tn % kSubgroup == 0, "its invocations have the same rows");

bool shares_rows(const hal::DeviceInfo& target) {
  return target.backend == "opencl" && has_narrow_subgroups(target) && target.has("cl_khr_subgroups") &&
         target.has("cl_intel_required_subgroup_size");
}

// Of the largest tile only, and not beside NF4's codes: with more loads under way per invocation ocloc 22.43 spills.
bool shares_rows(const Tile& tile, const hal::DeviceInfo& target) {
  return shares_rows(target) && tile.bm == kSharedTiles[0].bm;
}

std::span<const Tile> tiles_for(const hal::DeviceInfo& target, TileUse use) {
  if (target.is_cpu) return kHostTiles;
  if (shares_rows(target) && use.more_per_column == 0) return kSharedTiles;
  return kTiles;
}

std::map<std::string, std::int64_t> params_of(const Tile& tile) {
  return {{"bm", tile.bm}, {"bn", tile.bn}, {"bk", tile.bk}, {"tm", tile.tm}, {"tn", tile.tn}};
}

Tile tile_of(const std::map<std::string, std::int64_t>& p) {
  return {p.at("bm"), p.at("bn"), p.at("bk"), p.at("tm"), p.at("tn")};
}

std::string unsupported_operands(const CallView& call, const hal::DeviceInfo& target) {
  return kernels::any_low_precision(call) ? unsupported_f16(call, target) : unsupported_dtype(call);
}

// Intel's GPUs, whose compilers need the products written out.
bool is_expanded(const std::map<std::string, std::int64_t>& params, const hal::DeviceInfo& target) {
  const auto found = params.find("expanded");
  if (found != params.end()) return found->second != 0;
  return has_narrow_subgroups(target);
}

bool is_of_nvidia(const hal::DeviceInfo& target) { return target.vendor.starts_with("NVIDIA"); }

bool has_paired_lanes(const std::map<std::string, std::int64_t>& params, const hal::DeviceInfo& target) {
  const auto found = params.find("paired_lanes");
  if (found != params.end()) return found->second != 0;
  return is_of_nvidia(target);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const std::string reason = unsupported_operands(call, target);
  if (!reason.empty()) return Fit::no(reason);
  const Product product = product_of(call);
  return gpu_tile_fit(product.dims, target, product.use);
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  if (!unsupported_operands(call, target).empty()) return {};
  const Product product = product_of(call);
  return gpu_tile_alternatives(product.dims, target, product.use);
}

// Each element of C is one chain of multiply-adds over k in order, whatever the tile.
Fit fit_unsplit(const CallView& call, const hal::DeviceInfo& target) {
  const std::string reason = unsupported_operands(call, target);
  return reason.empty() ? gpu_tile_fit(kernels::matmul_dims(call), target, {.unsplit = true})
                        : Fit::no(reason);
}

void encode(const EncodeArgs& args) {
  const Product product = product_of(args.call);
  Launch own;
  product.add_groups(args, own);
  encode_gpu_tile(args, product.dims, std::move(own), product.use);
}

}  // namespace

std::vector<Fit> gpu_tile_alternatives(const MatmulDims& d, const hal::DeviceInfo& target, TileUse use) {
  std::vector<Fit> result;
  const Product product{d, use};
  const auto add = [&](const std::map<std::string, std::int64_t>& params, const Tile& tile) {
    if (!fits(target, tile, use)) return;
    for (Fit& fit : product_alternatives(params, product, target, tile.tiles(product, target)))
      result.push_back(std::move(fit));
  };
  for (const Tile& tile : tiles_for(target, use)) add(params_of(tile), tile);
  // What CPU drivers do only where it is asked for, so that tests run it.
  if (!target.is_cpu) return result;
  const bool plain = use.row_groups == 0 && use.more_per_column == 0;
  for (const char* of_gpus : {"prefetch", "expanded", "paired_lanes", "rolled"}) {
    if (of_gpus == std::string("expanded") && !plain) continue;  // PoCL compiles it for long
    std::map<std::string, std::int64_t> params = params_of(kHostTiles[1]);
    params[of_gpus] = 1;
    if (of_gpus == std::string("rolled")) params["prefetch"] = 1;
    add(params, kHostTiles[1]);
  }
  return result;
}

bool gpu_tile_prefetches(const std::map<std::string, std::int64_t>& params, const hal::DeviceInfo& target) {
  const auto found = params.find("prefetch");
  if (found != params.end()) return found->second != 0;
  // CPU drivers hold what is live at a barrier in memory, and GPUs of narrow subgroups have no registers left beside the sums,
  // unless subgroups share rows.
  if (has_narrow_subgroups(target)) return shares_rows(tile_of(params), target);
  return !target.is_cpu;
}

Fit gpu_tile_fit(const MatmulDims& d, const hal::DeviceInfo& target, TileUse use) {
  const Product product{d, use};
  const std::int64_t rows = use.rows(d.m);
  // How many tiles groups need is known at run time only; and CPU drivers run what is measured to be fast there.
  const bool by_work = !target.is_cpu && use.row_groups == 0;
  const Tile* chosen = nullptr;
  double best = 0;
  for (const Tile& tile : tiles_for(target, use)) {
    if (!fits(target, tile, use)) continue;
    if (!by_work && chosen) {
      const std::array<std::int64_t, 3> groups = chosen->groups(d, use);
      if (groups[0] * groups[1] * d.g >= target.profile.cores && !wider_than(chosen->bm, rows) &&
          !wider_than(chosen->bn, d.n))
        continue;
    }
    if (by_work) {
      const double time = product_seconds(d, target, tile.tiles(product, target), use.may_split());
      constexpr double kMinGain = 1.03;
      if (chosen && time * kMinGain > best) continue;
      best = time;
    }
    chosen = &tile;
  }
  if (chosen) return fit_product(params_of(*chosen), product, target, chosen->tiles(product, target));
  return Fit::no("the smallest tile needs " + std::to_string(kTiles[4].shared_bytes()) +
                 " bytes of workgroup memory and workgroups of 64; the device has " +
                 std::to_string(workgroup_bytes(target)) + " and " + std::to_string(max_invocations(target)));
}

void encode_gpu_tile(const EncodeArgs& args, const MatmulDims& d, Launch own, TileUse use) {
  const auto& p = args.choice.params;
  const Tile tile = tile_of(p);
  const hal::DType dtype = args.call.inputs[0].dtype;
  const std::int64_t wide_a = load_width(dtype, d.trans_a ? d.m : d.k),
                     wide_b = load_width(dtype, d.trans_b ? d.k : d.n);
  const bool whole_steps = Product{d, use}.has_whole_steps(tile.bk);
  own.kernel = "matmul_gpu_tile";
  for (hal::Define& item : std::vector<hal::Define>{
           define("AB_TYPE", dtype_code(dtype)), define("BM", tile.bm), define("BN", tile.bn),
           define("BK", tile.bk), define("TM", tile.tm), define("TN", tile.tn),
           define("TRANS_A", d.trans_a ? 1 : 0), define("TRANS_B", d.trans_b ? 1 : 0),
           define("WIDE_A", wide_a), define("WIDE_B", wide_b), define("WHOLE_STEPS", whole_steps),
           define("PREFETCH", gpu_tile_prefetches(p, args.device.info())),
           define("EXPANDED", is_expanded(p, args.device.info())),
           define("PAIRED_LANES", has_paired_lanes(p, args.device.info()))})
    own.defines.push_back(std::move(item));
  if (has_rolled_sums(p, args.device.info())) {
    own.defines.push_back({"ROLLED", "1"});
    own.aliased =
        0b11;  // else the loads of the next tiles move behind the products' loop, where they are waited for
  }
  if (shares_rows(tile, args.device.info())) {
    own.defines.push_back(define("SUBGROUP", kSubgroup));
    own.defines.push_back({"MOST_REGISTERS", "1"});
  }
  // On NVIDIA 512 invocations of 128 registers share a multiprocessor. Two registers more, and a workgroup of 256 would be alone on it,
  // with nothing to do at its barriers. Where a row's end, the last step or the own part of K has to be found, they do not suffice.
  if (args.device.info().backend == "opencl" && is_of_nvidia(args.device.info()) && tile.tm * tile.tn >= 64 &&
      whole_steps && wide_a > 1 && wide_b > 1 && p.find("parts") == p.end())
    own.defines.push_back(define("MIN_WORKGROUPS", 512 / tile.workgroup()));
  own.width = static_cast<std::uint32_t>(tile.workgroup());
  own.groups = matmul_groups(tile.groups(d, use));
  launch_product(args, d, own);
}

kernels::Variant matmul_gpu_tile() {
  return {.name = "gpu_tile",
          .kinds = {hal::ProfileKind::gpu},
          .about = "tiles of A and B staged in workgroup memory, blocks of C in registers",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .low_precision = true};
}

kernels::Variant grouped_gpu_tile() {
  kernels::Variant variant = matmul_gpu_tile();
  variant.about = "tiles of C that each belong to one group, as gpu_tile of matmul computes them";
  return variant;
}

kernels::Variant matmul_gpu_tile_unsplit() {
  return {.name = "gpu_tile_unsplit",
          .kinds = {hal::ProfileKind::gpu},
          .about = "gpu_tile, but K is never divided: an element's bits depend on its row and column alone",
          .fit = fit_unsplit,
          .encode = encode,
          .low_precision = true,
          .row_exact = true};
}

}  // namespace meshloom::backends::simt
