// Matmul of 16-bit floats on the matrix unit.
#include <algorithm>
#include <utility>

#include "backends/vulkan/device/cooperative.h"

namespace meshloom::backends::vulkan {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::MatmulDims;
using simt::Product;

// Of a tile of `rows` rows along K (operand_tile.inc).
std::int64_t operand_bytes(const MatrixTile& tile, std::int64_t rows, std::int64_t matrix, bool turned) {
  const std::int64_t stride = tile.bk / 8 | 1;
  return 16 * (rows * stride + (turned ? rows / matrix * 2 : 0));
}

// Both tiles, or the strips of sums that go through the same memory at the end; and what is kept of a group (KEEP_GROUP).
std::int64_t shared_bytes(const MatrixTile& tile, const MatmulDims& d, std::int64_t buffers) {
  constexpr std::int64_t kGroupBytes = 16;
  const std::int64_t strips = tile.rows * tile.columns * tile.shape.m * (tile.fn * tile.shape.n / 4 + 1);
  return std::max(buffers * (operand_bytes(tile, tile.bm(), tile.shape.m, d.trans_a) +
                             operand_bytes(tile, tile.bn(), tile.shape.n, !d.trans_b)),
                  16 * strips) +
         (buffers > 1 ? kGroupBytes : 0);
}

// Words of 16 bytes that an invocation has on their way for a tile's side.
std::int64_t prefetch_words(const MatrixTile& tile, std::int64_t side, bool transposed) {
  const std::int64_t units =
      transposed ? tile.bk / 2 * hal::round_up(side / 8, 4) : side * (tile.bk / 8);  // operand_tile.inc
  return hal::ceil_div(units, tile.workgroup()) * (transposed ? 2 : 1);
}

// What ANV keeps of an invocation in registers: sums, what is on its way and its places, the matrices of A, once more the numbers that
// they are put together from, and one of B.
std::int64_t rolled_registers(const MatrixTile& tile, const MatmulDims& d) {
  const hal::MatrixShape& shape = tile.shape;
  return (tile.fm * tile.fn * shape.m * shape.n + (2 * tile.fm * shape.m + shape.n) * shape.k / 2) /
             tile.lanes +
         6 * (prefetch_words(tile, tile.bm(), d.trans_a) + prefetch_words(tile, tile.bn(), !d.trans_b));
}

std::vector<MatrixTile> tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape,
                              std::int64_t lanes, const MatmulDims& dims) {
  const std::int64_t buffers = simt::needs_rolled_sums(target) ? 2 : 1;
  std::vector<MatrixTile> all = simt::matrix_tiles(
      target, shape, lanes, [&](const MatrixTile& tile) { return shared_bytes(tile, dims, buffers); });
  // An invocation with half of its registers for sums has room for as much again, of operands and of what is on its way: by what
  // RADV spills for RDNA3.
  constexpr std::int64_t kManySums = 128, kMaxBytes = 128;
  std::erase_if(all, [&](const MatrixTile& tile) {
    const std::int64_t sums = tile.fm * tile.fn * shape.m * shape.n / lanes;
    return !target.is_cpu && sums >= kManySums &&
           2 * (tile.bm() + tile.bn()) * tile.bk > kMaxBytes * tile.workgroup();
  });
  // By what ANV spills: it has 128, some for addresses.
  constexpr std::int64_t kMaxRolled = 122;
  if (simt::needs_rolled_sums(target))
    std::erase_if(all, [&](const MatrixTile& tile) { return rolled_registers(tile, dims) > kMaxRolled; });
  return all;
}

std::string unsupported_dtype(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_cooperative(target, call.inputs[0].dtype); !reason.empty())
    return reason;
  return simt::unsupported_size(call);
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (const std::string reason = unsupported_dtype(call, target); !reason.empty()) return Fit::no(reason);
  const Product product = simt::product_of(call);
  const std::vector<hal::MatrixShape> shapes = simt::matrix_shapes(target, call.inputs[0].dtype);
  for (const hal::MatrixShape& shape : shapes)
    if (const auto tile = simt::best_tile(
            tiles(target, shape, subgroup_choices(target, shape).front(), product.dims), target, product))
      return simt::fit_product(tile->params(), product, target, simt::product_tiles(*tile, product, target));
  return Fit::no(simt::unsupported_tiles(target, shapes.front()));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported_dtype(call, target).empty()) return result;
  const Product product = simt::product_of(call);
  for (const hal::MatrixShape& shape : simt::matrix_shapes(target, call.inputs[0].dtype))
    for (const std::int64_t lanes : subgroup_choices(target, shape))
      for (const MatrixTile& tile : tiles(target, shape, lanes, product.dims))
        for (Fit& fit : simt::product_alternatives(tile.params(), product, target,
                                                   simt::product_tiles(tile, product, target)))
          result.push_back(std::move(fit));
  // What CPU drivers do only where it is asked for, so that tests run it.
  if (target.is_cpu)
    for (const hal::MatrixShape& shape : simt::matrix_shapes(target, call.inputs[0].dtype)) {
      const MatrixTile tile{shape, subgroup_choices(target, shape).front(), 2, 1, 2, 1, shape.k};
      std::map<std::string, std::int64_t> params = tile.params();
      params["rolled"] = 1;
      if (tile.workgroup() <= simt::max_invocations(target) &&
          shared_bytes(tile, product.dims, 2) <= simt::workgroup_bytes(target))
        for (Fit& fit :
             simt::product_alternatives(params, product, target, simt::product_tiles(tile, product, target)))
          result.push_back(std::move(fit));
    }
  return result;
}

void encode(const EncodeArgs& args) {
  const MatrixTile tile = MatrixTile::of(args.choice.params, args.call.inputs[0].dtype, hal::DType::f32);
  simt::Launch own{.kernel = "matmul_cooperative",
                   .subgroup = required_subgroup(args.device.info(), tile.lanes)};
  if (simt::has_rolled_sums(args.choice.params, args.device.info())) {
    own.defines.push_back({"ROLLED", "1"});
    own.aliased = 0b11;  // as in matmul_gpu_tile
  }
  simt::launch_product(args, simt::product_of(args.call), tile, own);
}

}  // namespace

kernels::Variant matmul_cooperative() {
  return {.name = "cooperative",
          .kinds = {hal::ProfileKind::gpu},
          .about =
              "16-bit floats on the matrix unit: a subgroup multiplies whole "
              "matrices, which are turned on their way into workgroup memory where they do not run along K",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .low_precision = true,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::vulkan
