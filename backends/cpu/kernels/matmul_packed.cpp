// Slabs of C, block by block of k: one operand in column panels that stay in cache (packed before, or by the
// first strip of rows that reads it), the other read in place a strip of rows at a time. Every element is
// summed over blocks of tile_k in order, whatever the slabs are: they may follow the threads.
//
// Swapped, the slab is computed as op(B)^T op(A)^T: B is then the side that is read in place. Where A has few
// rows and B lies transposed, packing B would cost as much as a good part of the product.
#include <algorithm>

#include "backends/cpu/kernels/matmul_epilogue.h"
#include "backends/cpu/kernels/matmul_micro.h"
#include "backends/cpu/kernels/matmul_scratch.h"
#include "backends/cpu/kernels/matmul_work.h"

namespace meshloom::backends::cpu {
namespace {

// The left side gives rows, the right side columns of the sums: element (i, k) at left[i * left_row + k *
// left_col], element (k, j) at right[k * right_row + j * right_col].
struct Sides {
  const float *left, *right;
  std::int64_t left_row, left_col, right_row, right_col;
};

Sides sides(const MatmulOperands& o, bool swapped, std::int64_t row, std::int64_t column) {
  const float *a = o.a + row * o.a_row, *b = o.b + column * o.b_col;
  if (swapped) return {b, a, o.b_col, o.b_row, o.a_col, o.a_row};
  return {a, b, o.a_row, o.a_col, o.b_row, o.b_col};
}

// The block of the left side that comes after rows [i, i + panel) of the block of k at k0.
Upcoming upcoming(const MatmulWork& work, const Sides& s, std::int64_t rows, std::int64_t i,
                  std::int64_t k0) {
  i += work.panel;
  if (i >= rows) i = 0, k0 += work.tile_k;
  if (k0 >= work.k) return {};
  const std::int64_t count = std::min<std::int64_t>(work.panel, rows - i),
                     depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
  const float* data = s.left + i * s.left_row + k0 * s.left_col;
  return s.left_col == 1 ? Upcoming{data, count, depth, s.left_row}
                         : Upcoming{data, depth, count, s.left_col};
}

// C (columns of `sums` as rows) = what the epilogue makes of it, a few rows at a time.
void finish_transposed(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
                       std::int64_t stride, float* turned, float* c, std::int64_t c_stride) {
  for (std::int64_t i = 0; i < rows; i += kTurned) {
    const std::int64_t count = std::min(kTurned, rows - i);
    transpose(sums + i, stride, columns, count, turned, columns);
    Epilogue part = epilogue;
    if (part.residual != nullptr) part.residual += i * c_stride;
    apply_epilogue(part, count, columns, turned, columns, c + i * c_stride, c_stride);
  }
}

}  // namespace

// work.panel: rows of the left side that stay in the second-level cache beside the right side's panels.
void run_matmul_packed(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_m = work.tiles_m(), tiles_n = work.tiles_n();
  const MicroTile micro = micro_tile();
  const bool swapped = work.swapped != 0;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item % tiles_m * work.tile_m, column = item / tiles_m % tiles_n * work.tile_n;
    const std::int64_t height = std::min<std::int64_t>(work.tile_m, work.m - row),
                       width = std::min<std::int64_t>(work.tile_n, work.n - column);
    const std::int64_t rows = swapped ? width : height, columns = swapped ? height : width;
    const MatmulOperands o = matmul_operands(work, args, item / tiles_m / tiles_n);
    const Sides s = sides(o, swapped, row, column);
    // The sums may not land on a residual that is still to be read.
    const bool apart = swapped || (o.residual != nullptr && o.residual == o.c);
    const bool pack_left = packs_left(s.left_row, s.left_col);
    const auto scratch = thread_scratch({work.tile_k * round_up(columns, micro.columns),
                                         pack_left ? packed_a_floats(work.panel, work.tile_k) : 0,
                                         apart ? rows * round_up(columns, micro.columns) : 0,
                                         swapped ? kTurned * work.panel : 0});
    float* sums = apart ? scratch[2] : o.c + row * work.n + column;
    const std::int64_t stride = apart ? round_up(columns, micro.columns) : work.n;
    for (std::int64_t k0 = 0; k0 < work.k; k0 += work.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
      const float* right = s.right + k0 * s.right_row;
      BView packed{};
      if (s.right_col != 1) packed = pack_b(right, s.right_row, s.right_col, depth, columns, scratch[0]);
      for (std::int64_t i = 0; i < rows; i += work.panel) {
        const std::int64_t count = std::min<std::int64_t>(work.panel, rows - i);
        const float* left = s.left + i * s.left_row + k0 * s.left_col;
        const AView a = pack_left ? pack_a(left, s.left_row, s.left_col, count, depth, scratch[1])
                                  : plain_a(left, s.left_row, s.left_col);
        const Upcoming next = upcoming(work, s, rows, i, k0);
        float* to = sums + i * stride;
        if (i == 0 && s.right_col == 1)
          packed = micro_gemm_packing(count, columns, depth, a, right, s.right_row, rows > count, scratch[0],
                                      to, stride, k0 > 0, next);
        else
          micro_gemm(count, columns, depth, a, packed, to, stride, k0 > 0, next);
        if (k0 + depth < work.k) continue;
        const std::int64_t at = swapped ? row * work.n + column + i : (row + i) * work.n + column;
        const Epilogue epilogue{work.activation,
                                o.bias == nullptr ? nullptr : o.bias + column + (swapped ? i : 0),
                                o.residual == nullptr ? nullptr : o.residual + at};
        if (swapped)
          finish_transposed(epilogue, columns, count, to, stride, scratch[3], o.c + at, work.n);
        else if (epilogue.any())
          apply_epilogue(epilogue, count, columns, to, stride, o.c + at, work.n);
      }
    }
  }
}

}  // namespace meshloom::backends::cpu
