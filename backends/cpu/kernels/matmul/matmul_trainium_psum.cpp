// Contraction on the partitions: a stationary tile (tile_k partitions x tile_m rows of C) meets moving tiles
// (tile_k x tile_n); each moving tile accumulates into its own PSUM bank, and the banks are evacuated, with
// the epilogue, after all of k.
#include <algorithm>

#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"

namespace meshloom::backends::cpu {

// work.panel: PSUM banks in use, hence moving tiles per work item.
void run_matmul_trainium_psum(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_m = work.tiles_m(), groups_n = ceil_div(work.tiles_n(), work.panel);
  const MicroTile micro = micro_tile();
  const std::int64_t bank = std::int64_t{work.tile_m} * work.tile_n;
  const auto [stationary, moving, psum] =
      thread_scratch({packed_a_floats(work.tile_m, work.tile_k),
                      work.tile_k * round_up(work.tile_n, micro.columns), work.panel * bank});
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i0 = item % tiles_m * work.tile_m,
                       first = item / tiles_m % groups_n * work.panel * work.tile_n,
                       last = std::min<std::int64_t>(work.n, first + work.panel * work.tile_n);
    const std::int64_t rows = std::min<std::int64_t>(work.tile_m, work.m - i0);
    const MatmulOperands o = matmul_operands(work, args, item / tiles_m / groups_n);
    for (std::int64_t k0 = 0; k0 < work.k; k0 += work.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
      const AView a = pack_a(o.a + i0 * o.a_row + k0 * o.a_col, o.a_row, o.a_col, rows, depth, stationary);
      for (std::int64_t j = first; j < last; j += work.tile_n) {
        const std::int64_t columns = std::min<std::int64_t>(work.tile_n, last - j);
        const BView b = pack_b(o.b + k0 * o.b_row + j * o.b_col, o.b_row, o.b_col, depth, columns, moving);
        micro_gemm(rows, columns, depth, a, b, psum + (j - first) / work.tile_n * bank, work.tile_n, k0 > 0);
      }
    }
    for (std::int64_t j = first; j < last; j += work.tile_n) {
      const std::int64_t at = i0 * work.n + j;
      apply_epilogue({work.activation, o.bias == nullptr ? nullptr : o.bias + j,
                      o.residual == nullptr ? nullptr : o.residual + at},
                     rows, std::min<std::int64_t>(work.tile_n, last - j),
                     psum + (j - first) / work.tile_n * bank, work.tile_n, o.c + at, work.n);
    }
  }
}

}  // namespace meshloom::backends::cpu
