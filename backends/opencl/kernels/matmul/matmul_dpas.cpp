// Matmul of 16-bit floats on the matrix units of Intel's GPUs.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device/dpas.h"
#include "backends/simt/kernels/matmul/matrix_tile.h"

namespace meshloom::backends::opencl {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using simt::MatrixTile;
using simt::Product;

constexpr std::int64_t kDepth = 32;  // of a tile, along K

// Two tiles of A and B; in their place, at the end, eight rows of each subgroup's sums (see matmul_dpas.cl).
std::int64_t shared_bytes(const MatrixTile& tile) {
  constexpr std::int64_t kPadding = 8;  // words of a band, and of a row of sums
  const auto band = [&](std::int64_t columns) { return tile.bk / 2 * columns + kPadding; };
  const std::int64_t tiles = 2 * (tile.bm() / 8 * band(8) + tile.bn() / tile.shape.n * band(tile.shape.n));
  return 4 * std::max(tiles, tile.rows * tile.columns * 8 * (tile.fn * tile.shape.n + kPadding));
}

// The largest first.
std::vector<MatrixTile> tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape) {
  struct Block {
    std::int64_t bm, bn, fm, fn;
  };
  // A subgroup's 4 x 4 matrices take half of the larger register file. With fewer, local memory would take longer than they do.
  constexpr std::array kBlocks{Block{256, 128, 4, 4}, Block{128, 256, 4, 4}, Block{128, 128, 4, 4},
                               Block{128, 64, 4, 2},  Block{64, 128, 4, 2},  Block{64, 64, 4, 2},
                               Block{32, 64, 2, 2},   Block{16, 64, 2, 2}};
  std::vector<MatrixTile> all;
  for (const Block& block : kBlocks) {
    const MatrixTile tile{
        shape,    shape.n, block.bm / (8 * block.fm), block.bn / (shape.n * block.fn), block.fm,
        block.fn, kDepth};
    if (tile.workgroup() <= simt::max_invocations(target) &&
        shared_bytes(tile) <= simt::workgroup_bytes(target))
      all.push_back(tile);
  }
  return all;
}

std::string unsupported(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_dpas(target, call.inputs[0].dtype); !reason.empty()) return reason;
  return simt::unsupported_size(call);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported(call, target); !reason.empty()) return Fit::no(std::move(reason));
  const Product product = simt::product_of(call);
  const hal::MatrixShape shape = *find_dpas(target, call.inputs[0].dtype);
  if (const auto tile = simt::best_tile(tiles(target, shape), target, product))
    return simt::fit_product(tile->params(), product, target, simt::product_tiles(*tile, product));
  return Fit::no(simt::unsupported_tiles(target, shape));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported(call, target).empty()) return result;
  const Product product = simt::product_of(call);
  for (const MatrixTile& tile : tiles(target, *find_dpas(target, call.inputs[0].dtype)))
    for (Fit& fit :
         simt::product_alternatives(tile.params(), product, target, simt::product_tiles(tile, product)))
      result.push_back(std::move(fit));
  return result;
}

void encode(const EncodeArgs& args) {
  const hal::DType in = args.call.inputs[0].dtype;
  const MatrixTile tile = MatrixTile::of(args.choice.params, in, hal::DType::f32);
  simt::launch_product(
      args, simt::product_of(args.call), tile,
      {.kernel = "matmul_dpas",
       .defines = {simt::define("AB_TYPE", simt::dtype_code(in)), simt::define("MOST_REGISTERS", 1)}});
}

}  // namespace

kernels::Variant matmul_dpas() {
  return {.name = "dpas",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on the matrix units of Intel's GPUs, by "
              "cl_intel_subgroup_matrix_multiply_accumulate: "
              "a subgroup multiplies whole matrices",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::opencl
