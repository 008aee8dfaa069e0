// Exact products of eight-bit integers on NVIDIA's tensor cores, by PTX within OpenCL C.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/opencl/kernels/int8_matmul/int8_products.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using simt::MatrixTile;

constexpr std::int64_t kDepth = 64;
// Tiles that have room: one that is multiplied and one whose words stand in registers meanwhile, or by copies that do not wait as many as
// matmul_ptx_mma has.
constexpr std::int64_t kStages = 2, kAsync = 3;

// `stages` tiles of A and B; in their place, at the end, 16 rows of each warp's sums.
std::int64_t shared_bytes(const MatrixTile& tile, std::int64_t stages) {
  const std::int64_t warps = tile.rows * tile.columns;
  return std::max(stages * (tile.bm() + tile.bn()) * kDepth, 4 * warps * 16 * (8 * tile.fn + 8));
}

std::vector<MatrixTile> tiles(const hal::DeviceInfo& target) {
  std::vector<MatrixTile> all =
      simt::matrix_tiles(target, mma_shape(hal::DType::i8), kWarp,
                         [](const MatrixTile& tile) { return shared_bytes(tile, kStages); });
  std::erase_if(all, [](const MatrixTile& tile) {
    // As of matmul_ptx_mma.
    constexpr std::int64_t kMaxBytes = 128;
    return tile.fm % 2 != 0 || tile.fn % 2 != 0 || tile.workgroup() < std::max(tile.bm(), tile.bn()) ||
           (tile.bm() + tile.bn()) * kDepth > kMaxBytes * tile.workgroup();
  });
  for (MatrixTile& tile : all) tile.bk = kDepth;
  return all;
}

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_mma(target, hal::DType::i8); !reason.empty()) return reason;
  return simt::unsupported_size(call);
}

// Whether copies of 16 bytes that do not wait can bring the operands.
bool fits_async(const MatrixTile& tile, const CallView& call, const hal::DeviceInfo& target) {
  return product_of(call).k % 16 == 0 && shared_bytes(tile, kAsync) <= target.limits.max_local_bytes;
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  std::vector<MatrixTile> all = tiles(target);
  const auto waits = [&](const MatrixTile& tile) { return !fits_async(tile, call, target); };
  if (!std::all_of(all.begin(), all.end(), waits)) std::erase_if(all, waits);
  if (const auto tile = simt::best_tile(all, target, product_of(call), false))
    return fit_int8(call, target, *tile, {{"async", waits(*tile) ? 0 : kAsync}});
  return Fit::no(simt::unsupported_tiles(target, mma_shape(hal::DType::i8)));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  for (const MatrixTile& tile : tiles(target))
    for (const std::int64_t async : {std::int64_t{0}, kAsync}) {
      if (async > 0 && !fits_async(tile, call, target)) continue;
      if (Fit fit = fit_int8(call, target, tile, {{"async", async}}); fit.ok)
        result.push_back(std::move(fit));
    }
  return result;
}

void encode(const EncodeArgs& args) {
  const std::int64_t async = args.choice.params.at("async");
  launch_int8(args, "int8_matmul_ptx_mma",
              {simt::define("ASYNC", async > 0), simt::define("STAGES", async > 0 ? async : kStages)});
}

}  // namespace

kernels::Variant int8_matmul_ptx_mma() {
  return {.name = "ptx_mma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "eight-bit integers on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: "
              "a warp multiplies whole matrices",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
