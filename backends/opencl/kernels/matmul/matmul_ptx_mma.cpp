// Matmul of 16-bit floats on NVIDIA's tensor cores, by PTX within OpenCL C.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/simt/kernels/matmul/matrix_tile.h"
#include "backends/simt/kernels/matmul/split_k.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::MatrixTile;

constexpr std::int64_t kStages = 2;

// The tiles of A and B twice; in their place, at the end, 16 rows of each warp's sums (see
// matmul_ptx_mma.cl).
std::int64_t shared_bytes(const MatrixTile& tile) {
  const std::int64_t warps = tile.rows * tile.columns;
  return std::max(2 * kStages * (tile.bm() + tile.bn()) * tile.bk, 4 * warps * 16 * (8 * tile.fn + 8));
}

std::vector<MatrixTile> tiles(const hal::DeviceInfo& target, hal::DType in) {
  std::vector<MatrixTile> all = simt::matrix_tiles(target, mma_shape(in), kWarp, shared_bytes);
  std::erase_if(all, [](const MatrixTile& tile) {
    // A load gives a warp 16 columns of B; a round of stores fills eight rows of a tile at least (see PLACE). Tiles of 16 rows
    // would read B too often.
    const bool whole = tile.fm % 2 == 0 && tile.fn % 2 == 0 && tile.bk == 32 &&
                       tile.workgroup() >= std::max(tile.bm(), tile.bn());
    // What is on its way stands in registers beside the sums: by what the assembler spills.
    constexpr std::int64_t kMaxBytes = 128;
    return !whole || 2 * (tile.bm() + tile.bn()) * tile.bk > kMaxBytes * tile.workgroup();
  });
  return all;
}

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_mma(target, call.inputs[0].dtype); !reason.empty()) return reason;
  return simt::unsupported_size(call);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  const MatmulDims d = kernels::matmul_dims(call);
  const hal::DType in = call.inputs[0].dtype;
  if (const auto tile = simt::best_tile(tiles(target, in), target, d.m, d.n, d.g))
    return simt::fit_product(tile->params(), d, target, simt::product_tiles(*tile, d));
  return Fit::no(simt::unsupported_tiles(target, mma_shape(in)));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  const MatmulDims d = kernels::matmul_dims(call);
  for (const MatrixTile& tile : tiles(target, call.inputs[0].dtype))
    for (Fit& fit : simt::product_alternatives(tile.params(), d, target, simt::product_tiles(tile, d)))
      result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  const MatmulDims d = kernels::matmul_dims(args.call);
  const hal::DType in = args.call.inputs[0].dtype;
  const MatrixTile tile = MatrixTile::of(args.choice.params, in, hal::DType::f32);
  simt::launch_product(args, d, tile,
                       {.kernel = "matmul_ptx_mma",
                        .defines = {simt::define("AB_TYPE", simt::dtype_code(in)),
                                    simt::define("WHOLE_STEPS", d.k % tile.bk == 0)}});
}

}  // namespace

kernels::Variant matmul_ptx_mma() {
  return {.name = "ptx_mma",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on NVIDIA's tensor cores, by PTX that its OpenCL compiler takes: "
              "a warp multiplies whole matrices",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
