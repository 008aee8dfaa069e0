// One work item stands for one workgroup of a GPU: a tile of C in registers, slabs of A and B staged through a buffer
// of the size of the workgroup's shared memory.
#include <algorithm>

#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"

namespace meshloom::backends::cpu {

void run_matmul_gpu_tile(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_m = work.tiles_m(), tiles_n = work.tiles_n();
  const MicroTile micro = micro_tile();
  const auto [shared_a, shared_b, registers] = thread_scratch(
      {packed_a_floats(work.tile_m, work.tile_k), work.tile_k * round_up(work.tile_n, micro.columns),
       std::int64_t{work.tile_m} * work.tile_n});
  for (std::int64_t group = begin; group < end; ++group) {
    const std::int64_t i0 = group % tiles_m * work.tile_m, j0 = group / tiles_m % tiles_n * work.tile_n;
    const std::int64_t rows = std::min<std::int64_t>(work.tile_m, work.m - i0),
                       columns = std::min<std::int64_t>(work.tile_n, work.n - j0);
    const MatmulOperands o = matmul_operands(work, args, group / tiles_m / tiles_n);
    for (std::int64_t k0 = 0; k0 < work.k; k0 += work.tile_k) {
      const std::int64_t depth = std::min<std::int64_t>(work.tile_k, work.k - k0);
      const AView a = pack_a(o.a + i0 * o.a_row + k0 * o.a_col, o.a_row, o.a_col, rows, depth, shared_a);
      const BView b = pack_b(o.b + k0 * o.b_row + j0 * o.b_col, o.b_row, o.b_col, depth, columns, shared_b);
      micro_gemm(rows, columns, depth, a, b, registers, work.tile_n, k0 > 0);
    }
    const std::int64_t at = i0 * work.n + j0;
    apply_epilogue({work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                    o.residual == nullptr ? nullptr : o.residual + at},
                   rows, columns, registers, work.tile_n, o.c + at, work.n);
  }
}

}  // namespace meshloom::backends::cpu
