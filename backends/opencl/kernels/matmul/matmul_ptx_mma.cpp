// Matmul of 16-bit floats on NVIDIA's tensor cores, by PTX within OpenCL C.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/mma.h"
#include "backends/simt/kernels/matmul/matrix_tile.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::MatrixTile;
using simt::Product;

// A tile that is multiplied and one whose words stand in registers meanwhile.
constexpr std::int64_t kStages = 2;

// `stages` tiles of A and B; in their place, at the end, 16 rows of each warp's sums (see matmul_ptx_mma.cl).
std::int64_t shared_bytes(const MatrixTile& tile, std::int64_t stages) {
  const std::int64_t warps = tile.rows * tile.columns;
  return std::max(2 * stages * (tile.bm() + tile.bn()) * tile.bk, 4 * warps * 16 * (8 * tile.fn + 8));
}

std::vector<MatrixTile> tiles(const hal::DeviceInfo& target, hal::DType in) {
  std::vector<MatrixTile> all = simt::matrix_tiles(
      target, mma_shape(in), kWarp, [](const MatrixTile& tile) { return shared_bytes(tile, kStages); });
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

// Whether copies of 16 bytes that do not wait can bring the operands.
bool fits_async(const MatrixTile& tile, std::int64_t async, const MatmulDims& d,
                const hal::DeviceInfo& target) {
  return simt::has_wide_a(d) && simt::has_wide_b(d) &&
         shared_bytes(tile, async) <= target.limits.max_local_bytes;
}

// "async": the number of tiles that such copies bring at a time; 0 = they come through registers.
std::map<std::string, std::int64_t> params_of(const MatrixTile& tile, std::int64_t async) {
  std::map<std::string, std::int64_t> params = tile.params();
  params["async"] = async;
  return params;
}

// Where there is room for three: with two, an H200 multiplied 15 % slower than through registers.
std::int64_t default_async(const MatrixTile& tile, const MatmulDims& d, const hal::DeviceInfo& target) {
  constexpr std::int64_t kAsync = 3;
  return fits_async(tile, kAsync, d, target) ? kAsync : 0;
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  const Product product = simt::product_of(call);
  const hal::DType in = call.inputs[0].dtype;
  std::vector<MatrixTile> all = tiles(target, in);
  // On an H200, three tiles of 128 x 128 by copies that do not wait multiply 1.5 times as fast as larger tiles through registers.
  const auto waits = [&](const MatrixTile& tile) { return default_async(tile, product.dims, target) == 0; };
  if (!std::all_of(all.begin(), all.end(), waits)) std::erase_if(all, waits);
  if (const auto tile = simt::best_tile(all, target, product))
    return simt::fit_product(params_of(*tile, default_async(*tile, product.dims, target)), product, target,
                             simt::product_tiles(*tile, product));
  return Fit::no(simt::unsupported_tiles(target, mma_shape(in)));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  const Product product = simt::product_of(call);
  for (const MatrixTile& tile : tiles(target, call.inputs[0].dtype))
    for (const std::int64_t async : {0, 2, 3}) {
      if (async > 0 && !fits_async(tile, async, product.dims, target)) continue;
      for (Fit& fit : simt::product_alternatives(params_of(tile, async), product, target,
                                                 simt::product_tiles(tile, product)))
        result.push_back(std::move(fit));
    }
  return result;
}

void encode(const EncodeArgs& args) {
  const hal::DType in = args.call.inputs[0].dtype;
  const MatrixTile tile = MatrixTile::of(args.choice.params, in, hal::DType::f32);
  const auto found = args.choice.params.find("async");
  const std::int64_t async = found == args.choice.params.end() ? 0 : found->second;
  simt::launch_product(
      args, simt::product_of(args.call), tile,
      {.kernel = "matmul_ptx_mma",
       .defines = {simt::define("AB_TYPE", simt::dtype_code(in)), simt::define("ASYNC", async > 0),
                   simt::define("STAGES", async > 0 ? async : kStages)}});
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
