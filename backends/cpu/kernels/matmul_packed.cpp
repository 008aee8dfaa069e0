// Slabs of C with B packed into panels block by block of k, A read in place (or packed where it is
// transposed). Every element is summed over blocks of tile_k in order, whatever the slabs are: they may
// follow the threads.
#include <algorithm>

#include "backends/cpu/kernels/matmul_epilogue.h"
#include "backends/cpu/kernels/matmul_micro.h"
#include "backends/cpu/kernels/matmul_scratch.h"
#include "backends/cpu/kernels/matmul_work.h"

namespace meshloom::backends::cpu {

// work.panel: rows of A that stay in the second-level cache beside the packed B.
void run_matmul_packed(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_m = work.tiles_m(), tiles_n = work.tiles_n();
  const MicroTile micro = micro_tile();
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i0 = item % tiles_m * work.tile_m, j0 = item / tiles_m % tiles_n * work.tile_n;
    const std::int64_t rows = std::min<std::int64_t>(work.tile_m, work.m - i0),
                       columns = std::min<std::int64_t>(work.tile_n, work.n - j0);
    const MatmulOperands o = matmul_operands(work, args, item / tiles_m / tiles_n);
    // The sums may not land on a residual that is still to be read.
    const bool apart = o.residual != nullptr && o.residual == o.c;
    // Rows a multiple of 1 KiB apart fall into the same few sets of the first-level cache.
    const bool pack_left = o.a_col != 1 || o.a_row % 256 == 0;
    const auto scratch = thread_scratch({work.tile_k * round_up(columns, micro.columns),
                                         pack_left ? packed_a_floats(work.panel, work.tile_k) : 0,
                                         apart ? rows * columns : 0});
    float* sums = apart ? scratch[2] : o.c + i0 * work.n + j0;
    const std::int64_t stride = apart ? columns : work.n;
    for (std::int64_t k0 = 0; k0 < work.k; k0 += work.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
      const BView b = pack_b(o.b + k0 * o.b_row + j0 * o.b_col, o.b_row, o.b_col, depth, columns, scratch[0]);
      for (std::int64_t i = 0; i < rows; i += work.panel) {
        const std::int64_t count = std::min<std::int64_t>(work.panel, rows - i);
        const float* left = o.a + (i0 + i) * o.a_row + k0 * o.a_col;
        const AView a = pack_left ? pack_a(left, o.a_row, o.a_col, count, depth, scratch[1])
                                  : plain_a(left, o.a_row, o.a_col);
        micro_gemm(count, columns, depth, a, b, sums + i * stride, stride, k0 > 0);
        if (k0 + depth < work.k) continue;
        const std::int64_t at = (i0 + i) * work.n + j0;
        const Epilogue epilogue{work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                                o.residual == nullptr ? nullptr : o.residual + at};
        if (epilogue.any())
          apply_epilogue(epilogue, count, columns, sums + i * stride, stride, o.c + at, work.n);
      }
    }
  }
}

}  // namespace meshloom::backends::cpu
