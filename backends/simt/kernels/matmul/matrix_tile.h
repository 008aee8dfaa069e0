// Products on a matrix unit: the choice of the device's matrix shapes, and the tile that a workgroup computes with them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/split_k.h"
#include "hal/device.h"

namespace meshloom::backends::simt {

// The device's matrix shapes for one dtype of A and B with f32 sums (i32 for i8), the largest product first.
std::vector<hal::MatrixShape> matrix_shapes(const hal::DeviceInfo& target, hal::DType in);
// The dtype of those sums.
hal::DType matrix_sum(hal::DType in);

// The number of f32 sums that an invocation holds in registers beside its operands, by the size of its subgroup.
std::int64_t max_sums(std::int64_t lanes);

// MATRIX_M, MATRIX_N, MATRIX_K, MATRIX_BF16, MATRIX_INT8, LANES_OF_SUBGROUP.
std::vector<hal::Define> matrix_defines(const hal::MatrixShape& shape, std::int64_t lanes);

// A workgroup's tile: bm x bn of C in steps of bk, by rows x columns subgroups with fm x fn matrices each.
struct MatrixTile {
  hal::MatrixShape shape;
  std::int64_t lanes, rows, columns, fm, fn, bk;

  std::int64_t bm() const { return rows * fm * shape.m; }
  std::int64_t bn() const { return columns * fn * shape.n; }
  std::int64_t workgroup() const { return rows * columns * lanes; }
  // Bytes of workgroup memory for one matrix of sums per subgroup.
  std::int64_t patch_bytes() const { return 4 * rows * columns * shape.m * shape.n; }
  // Loop iterations of one invocation for a step of bk, with loads of eight elements, and for the stores at the end (see
  // simt::max_iterations).
  std::int64_t iterations() const;
  std::int64_t end_iterations() const;
  std::array<std::int64_t, 3> groups(std::int64_t m, std::int64_t n, std::int64_t g) const;
  std::array<std::int64_t, 3> groups(const Product& product) const;

  // The defines of a kernel: matrix_defines, SUBGROUPS_M, SUBGROUPS_N, MATRICES_M, MATRICES_N, BK.
  std::vector<hal::Define> defines() const;
  // The parameters of a choice, and the tile of such parameters.
  std::map<std::string, std::int64_t> params() const;
  static MatrixTile of(const std::map<std::string, std::int64_t>& params, hal::DType in, hal::DType sum);
};

// The tiles of a shape that fit the device, the largest first; shared_bytes(tile): the workgroup memory that one needs.
std::vector<MatrixTile> matrix_tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape,
                                     std::int64_t lanes,
                                     const std::function<std::int64_t(const MatrixTile&)>& shared_bytes);
// The tile of `tiles` for a product: not much larger than C, and small enough to give every core work. Where not `split`, K is never
// divided between workgroups.
std::optional<MatrixTile> best_tile(const std::vector<MatrixTile>& tiles, const hal::DeviceInfo& target,
                                    const kernels::MatmulDims& dims, bool split = true);
// The same for a call of matmul or of products by group.
std::optional<MatrixTile> best_tile(const std::vector<MatrixTile>& tiles, const hal::DeviceInfo& target,
                                    const Product& product);
// The reason why no tile fits.
std::string unsupported_tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape);

// A product by `tile`, for fit_product.
Tiles product_tiles(const MatrixTile& tile, const Product& product, const hal::DeviceInfo& target);
// Records a product by the kernel `own`, to which are added the tile's defines, TRANS_A, TRANS_B, and WIDE_A and WIDE_B:
// 1 where rows in device memory are multiples of eight elements; also WIDE_C, WHOLE_STEPS, and what groups need.
void launch_product(const kernels::EncodeArgs& args, const Product& product, const MatrixTile& tile,
                    Launch own);

}  // namespace meshloom::backends::simt
