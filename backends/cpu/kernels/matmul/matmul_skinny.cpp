// Products with few rows of A: B is read once, in place, at the speed of memory. The order of every sum depends on the
// shape and the vector width alone.
#include "backends/cpu/kernels/matmul/matmul_skinny.h"
#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_scratch.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/matmul/matmul_skinny.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// out[i * stride + j] = sum over k of a[i * a_row + k] b[j * b_row + k] for i < M, j < ROWS. Sums are vectors along
// k, whose lanes are added at the end.
template <int M, int ROWS>
HWY_INLINE void Dots(std::int64_t k, const float* a, std::int64_t a_row, const float* b, std::int64_t b_row,
                     float* out, std::int64_t stride) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kLine = 16,
                         kPrefetch = 8 * kLine;  // floats of a cache line; distance of the prefetch
  V sums[M][ROWS];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) sums[i][j] = hn::Zero(d);
  std::int64_t step = 0;
  for (; step + kLine <= k; step += kLine) {
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) hwy::Prefetch(b + j * b_row + step + kPrefetch);
    for (std::int64_t at = step; at < step + kLine; at += lanes) {
      V right[ROWS];
#pragma GCC unroll 8
      for (int j = 0; j < ROWS; ++j) right[j] = hn::LoadU(d, b + j * b_row + at);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) {
        const V left = hn::LoadU(d, a + i * a_row + at);
#pragma GCC unroll 8
        for (int j = 0; j < ROWS; ++j) sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
      }
    }
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < ROWS; ++j) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
      for (std::int64_t rest = step; rest < k; ++rest) sum += a[i * a_row + rest] * b[j * b_row + rest];
      out[i * stride + j] = sum;
    }
}

template <int M>
void DotRows(std::int64_t n, std::int64_t k, const float* a, std::int64_t a_row, const float* b,
             std::int64_t b_row, float* out, std::int64_t stride) {
  constexpr int kRows = M == 1 ? 6 : M == 2 ? 4 : 3;  // as many sums as fit sixteen registers
  std::int64_t j = 0;
  for (; j + kRows <= n; j += kRows) Dots<M, kRows>(k, a, a_row, b + j * b_row, b_row, out + j, stride);
  for (; j < n; ++j) Dots<M, 1>(k, a, a_row, b + j * b_row, b_row, out + j, stride);
}

// out[i * stride + j] (+)= sum over `ROWS` rows of a[i * a_row + r * a_col] b[r * b_row + j], j < n. Reads
// and writes whole vectors of `out`, which has room for them.
template <int M, int ROWS>
HWY_INLINE void AddRows(std::int64_t n, const float* a, std::int64_t a_row, std::int64_t a_col,
                        const float* b, std::int64_t b_row, float* out, std::int64_t stride, bool first) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V factors[M][ROWS];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) factors[i][r] = hn::Set(d, a[i * a_row + r * a_col]);
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    V sums[M];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) sums[i] = first ? hn::Zero(d) : hn::Load(d, out + i * stride + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const V right = hn::LoadU(d, b + r * b_row + j);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) sums[i] = hn::MulAdd(factors[i][r], right, sums[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) hn::Store(sums[i], d, out + i * stride + j);
  }
  for (; j < n; ++j)
    for (int i = 0; i < M; ++i) {
      float sum = first ? 0.0f : out[i * stride + j];
      for (int r = 0; r < ROWS; ++r) sum += a[i * a_row + r * a_col] * b[r * b_row + j];
      out[i * stride + j] = sum;
    }
}

template <int M>
void SumRows(std::int64_t n, std::int64_t k, const float* a, std::int64_t a_row, std::int64_t a_col,
             const float* b, std::int64_t b_row, float* out, std::int64_t stride) {
  constexpr int kRows = M == 1 ? 8 : M == 2 ? 4 : 2;  // M * kRows factors stay in registers
  std::int64_t step = 0;
  for (; step + kRows <= k; step += kRows)
    AddRows<M, kRows>(n, a + step * a_col, a_row, a_col, b + step * b_row, b_row, out, stride, step == 0);
  for (; step < k; ++step)
    AddRows<M, 1>(n, a + step * a_col, a_row, a_col, b + step * b_row, b_row, out, stride, step == 0);
}

void Skinny(const SkinnyBlock& s, std::int64_t m, std::int64_t n, float* out, std::int64_t stride) {
  if (s.k == 0)
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(out + i * stride, n, 0.0f);
  const bool dots = s.b_row == 1 && s.a_col == 1;
  const auto run = [&]<int M>(std::int64_t i) {
    const float* a = s.a + i * s.a_row;
    if (dots)
      DotRows<M>(n, s.k, a, s.a_row, s.b, s.b_col, out + i * stride, stride);
    else
      SumRows<M>(n, s.k, a, s.a_row, s.a_col, s.b, s.b_row, out + i * stride, stride);
  };
  for (std::int64_t i = 0; i < m; i += 4) switch (m - i) {
      case 1:
        run.template operator()<1>(i);
        break;
      case 2:
        run.template operator()<2>(i);
        break;
      case 3:
        run.template operator()<3>(i);
        break;
      default:
        run.template operator()<4>(i);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Skinny);

// One work item: tile_n columns of C.
void run_matmul_skinny(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const std::int64_t tiles_n = work.tiles_n();
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t j0 = item % tiles_n * work.tile_n;
    const std::int64_t columns = std::min<std::int64_t>(work.tile_n, work.n - j0),
                       stride = round_up(columns, 16);
    const MatmulOperands o = matmul_operands(work, args, item / tiles_n);
    float* sums = thread_scratch({work.m * stride})[0];
    HWY_DYNAMIC_DISPATCH(Skinny)
    ({o.a, o.b + j0 * o.b_col, work.k, o.a_row, o.a_col, o.b_row, o.b_col}, work.m, columns, sums, stride);
    const Epilogue epilogue{work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                            o.residual == nullptr ? nullptr : o.residual + j0};
    apply_epilogue(epilogue, work.m, columns, sums, stride, o.c + j0, work.n);
  }
}

}  // namespace meshloom::backends::cpu
#endif
