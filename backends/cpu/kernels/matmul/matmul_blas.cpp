// Slabs of C, each computed by one single-threaded sgemm, so that the backend's pool stays the only one.
#include <algorithm>

#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/gemm/openblas.h"

namespace meshloom::backends::cpu {

void run_matmul_blas(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_m = work.tiles_m(), tiles_n = work.tiles_n();
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i0 = item % tiles_m * work.tile_m, j0 = item / tiles_m % tiles_n * work.tile_n;
    const std::int64_t rows = std::min<std::int64_t>(work.tile_m, work.m - i0),
                       columns = std::min<std::int64_t>(work.tile_n, work.n - j0);
    const MatmulOperands o = matmul_operands(work, args, item / tiles_m / tiles_n);
    const std::int64_t at = i0 * work.n + j0;
    const Epilogue epilogue{work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                            o.residual == nullptr ? nullptr : o.residual + at};
    // The sums must not overwrite a residual before it is read.
    const bool sums_in_scratch = o.residual == o.c && o.residual != nullptr;
    float* sums = sums_in_scratch ? thread_scratch({rows * columns})[0] : o.c + at;
    const std::int64_t stride = sums_in_scratch ? columns : work.n;
    openblas().sgemm(OpenBlas::kRowMajor, work.trans_a ? OpenBlas::kTrans : OpenBlas::kNoTrans,
                     work.trans_b ? OpenBlas::kTrans : OpenBlas::kNoTrans, static_cast<int>(rows),
                     static_cast<int>(columns), work.k, 1.0f, o.a + i0 * o.a_row,
                     work.trans_a ? work.m : work.k, o.b + j0 * o.b_col, work.trans_b ? work.k : work.n, 0.0f,
                     sums, static_cast<int>(stride));
    if (epilogue.any()) apply_epilogue(epilogue, rows, columns, sums, stride, o.c + at, work.n);
  }
}

}  // namespace meshloom::backends::cpu
