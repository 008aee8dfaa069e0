// Weight-stationary: a tile of B (tile_k x tile_n, the size of the matrix unit) is loaded once and a whole panel of
// rows of A streams past it. The panel's sums stay in the scratchpad for all of k.
#include <algorithm>

#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kStream = 192;  // rows of A copied into scratchpad at a time

}  // namespace

// work.tile_m: rows of a panel.
void run_matmul_tpu_stationary(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t panels = work.tiles_m(), tiles_n = work.tiles_n();
  const MicroTile micro = micro_tile();
  const auto [weights, stream, sums] =
      thread_scratch({work.tile_k * round_up(work.tile_n, micro.columns),
                      packed_a_floats(kStream, work.tile_k), std::int64_t{work.tile_m} * work.tile_n});
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i0 = item % panels * work.tile_m, j0 = item / panels % tiles_n * work.tile_n;
    const std::int64_t rows = std::min<std::int64_t>(work.tile_m, work.m - i0),
                       columns = std::min<std::int64_t>(work.tile_n, work.n - j0);
    const MatmulOperands o = matmul_operands(work, args, item / panels / tiles_n);
    for (std::int64_t k0 = 0; k0 < work.k; k0 += work.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
      const BView b = pack_b(o.b + k0 * o.b_row + j0 * o.b_col, o.b_row, o.b_col, depth, columns, weights);
      for (std::int64_t i = 0; i < rows; i += kStream) {
        const std::int64_t count = std::min(kStream, rows - i);
        const AView a =
            pack_a(o.a + (i0 + i) * o.a_row + k0 * o.a_col, o.a_row, o.a_col, count, depth, stream);
        micro_gemm(count, columns, depth, a, b, sums + i * work.tile_n, work.tile_n, k0 > 0);
      }
    }
    const std::int64_t at = i0 * work.n + j0;
    apply_epilogue({work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                    o.residual == nullptr ? nullptr : o.residual + at},
                   rows, columns, sums, work.tile_n, o.c + at, work.n);
  }
}

}  // namespace meshloom::backends::cpu
