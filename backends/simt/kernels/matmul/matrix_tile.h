// Blocks of products on a matrix unit: which of a device's shapes to use, and what a workgroup of a kernel
// computes with them.
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

// The matrix shapes of a device for one dtype of A and B with sums of f32 (of i8: i32), the one that does
// most first.
std::vector<hal::MatrixShape> matrix_shapes(const hal::DeviceInfo& target, hal::DType in);
// The dtype of those sums.
hal::DType matrix_sum(hal::DType in);

// Most f32 sums an invocation holds in registers beside its operands, by the size of its subgroup.
std::int64_t most_sums(std::int64_t lanes);

// MATRIX_M, MATRIX_N, MATRIX_K, MATRIX_BF16, MATRIX_INT8, LANES_OF_SUBGROUP.
std::vector<hal::Define> matrix_defines(const hal::MatrixShape& shape, std::int64_t lanes);

// What a workgroup of a product computes, bm x bn of C in steps of bk: rows x columns subgroups, each of them
// fm x fn matrices of the device.
struct MatrixTile {
  hal::MatrixShape shape;
  std::int64_t lanes, rows, columns, fm, fn, bk;

  std::int64_t bm() const { return rows * fm * shape.m; }
  std::int64_t bn() const { return columns * fn * shape.n; }
  std::int64_t workgroup() const { return rows * columns * lanes; }
  // A matrix of sums per subgroup.
  std::int64_t patch_bytes() const { return 4 * rows * columns * shape.m * shape.n; }
  // Loop iterations of one invocation for a step of bk, read eight elements at a time, and those of the end
  // (see simt::most_iterations).
  std::int64_t iterations() const;
  std::int64_t end_iterations() const;
  std::array<std::int64_t, 3> groups(std::int64_t m, std::int64_t n, std::int64_t g) const;

  // What a kernel is compiled for: matrix_defines, SUBGROUPS_M, SUBGROUPS_N, MATRICES_M, MATRICES_N, BK.
  std::vector<hal::Define> defines() const;
  // As the parameters of a choice, and back.
  std::map<std::string, std::int64_t> params() const;
  static MatrixTile of(const std::map<std::string, std::int64_t>& params, hal::DType in, hal::DType sum);
};

// The tiles of a shape that the device has room for, largest first; shared_bytes(tile): of workgroup memory.
std::vector<MatrixTile> matrix_tiles(const hal::DeviceInfo& target, const hal::MatrixShape& shape,
                                     std::int64_t lanes,
                                     const std::function<std::int64_t(const MatrixTile&)>& shared_bytes);
// That of `tiles` for a product of m x n, g times: not much larger than it, and small enough to give every
// core work.
std::optional<MatrixTile> fitting(const std::vector<MatrixTile>& tiles, const hal::DeviceInfo& target,
                                  std::int64_t m, std::int64_t n, std::int64_t g);
// Why there is none.
std::string no_tile(const hal::DeviceInfo& target, const hal::MatrixShape& shape);

// A product by `tile`, as fit_product takes it.
Tiles product_tiles(const MatrixTile& tile, const kernels::MatmulDims& dims);
// Records one by a kernel that is compiled for the tile: `own`, with the tile's defines, TRANS_A, TRANS_B,
// and WIDE_A and WIDE_B, that rows in device memory are multiples of eight elements.
void launch_product(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims, const MatrixTile& tile,
                    Launch own);

}  // namespace meshloom::backends::simt
