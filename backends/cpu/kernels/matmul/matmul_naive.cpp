// One work item per chunk of a row of C: sums over k in order, in registers or on the stack.
#include <algorithm>

#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_work.h"

namespace meshloom::backends::cpu {

// work.tile_n: columns of a chunk, at most 256.
void run_matmul_naive(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t chunks = work.tiles_n();
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t batch = item / chunks / work.m, i = item / chunks % work.m;
    const std::int64_t j0 = item % chunks * work.tile_n,
                       count = std::min<std::int64_t>(work.tile_n, work.n - j0);
    const MatmulOperands o = matmul_operands(work, args, batch);
    float sums[256] = {};
    if (work.trans_b) {
      for (std::int64_t j = 0; j < count; ++j) {
        const float* column = o.b + (j0 + j) * o.b_col;
        for (std::int64_t k = 0; k < work.k; ++k) sums[j] += o.a[i * o.a_row + k * o.a_col] * column[k];
      }
    } else {
      for (std::int64_t k = 0; k < work.k; ++k) {
        const float factor = o.a[i * o.a_row + k * o.a_col];
        const float* row = o.b + k * o.b_row + j0;
        for (std::int64_t j = 0; j < count; ++j) sums[j] += factor * row[j];
      }
    }
    const std::int64_t at = i * work.n + j0;
    apply_epilogue({work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                    o.residual == nullptr ? nullptr : o.residual + at},
                   1, count, sums, 256, o.c + at, work.n);
  }
}

}  // namespace meshloom::backends::cpu
