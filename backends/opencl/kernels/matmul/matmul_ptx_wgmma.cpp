// Matmul of 16-bit floats on the tensor cores of NVIDIA's compute capability 9.0, by PTX within OpenCL C.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/simt/kernels/matmul/split_k.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::Product;

constexpr std::int64_t kWarpgroup = 4 * kWarp, kStep = 64;

// What matmul_ptx_wgmma.cl says of CONSUMERS, BLOCKS and BN.
struct WarpgroupTile {
  std::int64_t consumers, blocks, bn;
  // TFLOP/s of large products on an H200, to choose by.
  double rate;

  std::int64_t bm() const { return consumers * blocks * 64; }
  std::int64_t workgroup() const { return (consumers + 1) * kWarpgroup; }
  std::int64_t stage_bytes() const { return 2 * (bm() + bn) * kStep; }
  // As many as have room beside the barriers; more than six do not help.
  std::int64_t stages() const {
    constexpr std::int64_t kBarrierBytes = 256;
    return std::min<std::int64_t>(6, (kWgmmaLocalBytes - kBarrierBytes) / stage_bytes());
  }
  std::array<std::int64_t, 3> groups(const Product& product) const {
    const MatmulDims& d = product.dims;
    return {simt::ceil_div(d.n, bn), product.use.tiles(d.m, bm()), d.g};
  }
  std::map<std::string, std::int64_t> params() const {
    return {{"consumers", consumers}, {"blocks", blocks}, {"bn", bn}, {"stages", stages()}};
  }
};

constexpr std::array kTiles{WarpgroupTile{2, 2, 128, 690}, WarpgroupTile{2, 1, 256, 690},
                            WarpgroupTile{2, 1, 128, 480}};

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_wgmma(target, call.inputs[0].dtype); !reason.empty()) return reason;
  if (std::string reason = simt::unsupported_size(call); !reason.empty()) return reason;
  const MatmulDims d = simt::product_of(call).dims;
  if (simt::has_wide_a(d) && simt::has_wide_b(d)) return {};
  return "copies 16 bytes at a time: rows of A and B in memory must be multiples of 8 elements";
}

simt::Tiles tiles_of(const WarpgroupTile& tile, const Product& product, const hal::DeviceInfo& target) {
  constexpr double kCores = 132;  // of an H200
  return {.groups = tile.groups(product),
          .step = kStep,
          // NVIDIA's drivers end no loop early.
          .per_step = 1,
          .fixed = 1,
          .elements = tile.bm() * tile.bn,
          .rate = 1e12 * tile.rate * target.profile.cores / kCores,
          .per_core = 1};
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  const Product product = simt::product_of(call);
  const WarpgroupTile* best = nullptr;
  double least = 0;
  for (const WarpgroupTile& tile : kTiles) {
    simt::Tiles work = tiles_of(tile, product, target);
    work.groups[1] = product.use.full_tiles(product.dims.m, tile.bm());
    const double time = simt::product_seconds(product.dims, target, work, product.use.may_split());
    if (best && time >= least) continue;
    best = &tile;
    least = time;
  }
  return simt::fit_product(best->params(), product, target, tiles_of(*best, product, target));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  const Product product = simt::product_of(call);
  for (const WarpgroupTile& tile : kTiles)
    for (Fit& fit :
         simt::product_alternatives(tile.params(), product, target, tiles_of(tile, product, target)))
      result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  const Product product = simt::product_of(args.call);
  const MatmulDims& d = product.dims;
  const auto& p = args.choice.params;
  const WarpgroupTile tile{p.at("consumers"), p.at("blocks"), p.at("bn"), 0};
  simt::Launch own{.kernel = "matmul_ptx_wgmma",
                   .defines = {simt::define("CONSUMERS", tile.consumers), simt::define("BLOCKS", tile.blocks),
                               simt::define("BN", tile.bn), simt::define("STAGES", p.at("stages")),
                               simt::define("AB_TYPE", simt::dtype_code(args.call.inputs[0].dtype)),
                               simt::define("TRANS_A", d.trans_a), simt::define("TRANS_B", d.trans_b),
                               simt::define("WHOLE_STEPS", product.has_whole_steps(kStep)),
                               simt::define("WIDE_C", d.n % 8 == 0)},
                   .width = static_cast<std::uint32_t>(tile.workgroup()),
                   .groups = simt::matmul_groups(tile.groups(product))};
  product.add_groups(args, own);
  simt::launch_product(args, d, own);
}

}  // namespace

kernels::Variant matmul_ptx_wgmma() {
  return {
      .name = "ptx_wgmma",
      .kinds = {hal::ProfileKind::gpu},
      .about =
          "16-bit floats on the tensor cores of NVIDIA's H100 and H200: four warps together multiply tiles "
          "in workgroup memory, which further warps bring",
      .fit = fit,
      .encode = encode,
      .alternatives = alternatives,
      .low_precision = true,
      .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
