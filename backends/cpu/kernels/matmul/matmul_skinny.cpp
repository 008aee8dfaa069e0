// Products with few rows of A: B is read once, in place, at the speed of memory. The order of every sum depends on the
// shape and the vector width alone.
#include "backends/cpu/kernels/matmul/matmul_skinny.h"
#include "backends/cpu/gemm/matmul_epilogue.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/cast.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/matmul/matmul_skinny.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/stored_floats-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The first `count` floats at `from`, fewer than a vector, and zeros. A remainder goes through vectors too, as scalars are
// multiplied and added with one rounding or two as the compiler likes, and a row's bits must not depend on M.
template <class Of>
HWY_INLINE V LoadFirst(D d, const typename Of::T* from, std::int64_t count) {
  HWY_ALIGN float padded[hn::MaxLanes(D())] = {};
  for (std::int64_t i = 0; i < count; ++i) padded[i] = Of::load_one(from[i]);
  return hn::Load(d, padded);
}

// out[i * stride + j] = sum over k of a[i * a_row + k] b[j * b_row + k] for i < M, j < ROWS. Sums are vectors along
// k, whose lanes are added at the end. B is of floats as Of tells.
template <class Of, int M, int ROWS>
HWY_INLINE void Dots(std::int64_t k, const float* a, std::int64_t a_row, const typename Of::T* b,
                     std::int64_t b_row, float* out, std::int64_t stride) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kLine = 64 / sizeof(typename Of::T),
                         kPrefetch = 8 * kLine;  // elements of a cache line; distance of the prefetch
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
      for (int j = 0; j < ROWS; ++j) right[j] = Of::load(d, b + j * b_row + at);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) {
        const V left = hn::LoadU(d, a + i * a_row + at);
#pragma GCC unroll 8
        for (int j = 0; j < ROWS; ++j) sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
      }
    }
  }
  for (; step < k; step += lanes) {
    const std::int64_t count = std::min(lanes, k - step);
    V right[ROWS];
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) right[j] = LoadFirst<Of>(d, b + j * b_row + step, count);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const V left = LoadFirst<Stored<hal::DType::f32>>(d, a + i * a_row + step, count);
#pragma GCC unroll 8
      for (int j = 0; j < ROWS; ++j) sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
    }
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < ROWS; ++j) out[i * stride + j] = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
}

template <class Of, int M>
void DotRows(std::int64_t n, std::int64_t k, const float* a, std::int64_t a_row, const typename Of::T* b,
             std::int64_t b_row, float* out, std::int64_t stride) {
  constexpr int kRows = M == 1 ? 6 : M == 2 ? 4 : 2;  // sums for which sixteen registers suffice
  std::int64_t j = 0;
  for (; j + kRows <= n; j += kRows) Dots<Of, M, kRows>(k, a, a_row, b + j * b_row, b_row, out + j, stride);
  for (; j < n; ++j) Dots<Of, M, 1>(k, a, a_row, b + j * b_row, b_row, out + j, stride);
}

// out[i * stride + j] (+)= sum over `ROWS` rows of a[i * a_row + r * a_col] b[r * b_row + j], j < n. Reads
// and writes whole vectors of `out`, which has room for them.
template <class Of, int M, int ROWS>
HWY_INLINE void AddRows(std::int64_t n, const float* a, std::int64_t a_row, std::int64_t a_col,
                        const typename Of::T* b, std::int64_t b_row, float* out, std::int64_t stride,
                        bool first) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V factors[M][ROWS];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) factors[i][r] = hn::Set(d, a[i * a_row + r * a_col]);
  const auto add = [&](std::int64_t j, const auto& load) HWY_ATTR {
    V sums[M];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) sums[i] = first ? hn::Zero(d) : hn::Load(d, out + i * stride + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const V right = load(b + r * b_row + j);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) sums[i] = hn::MulAdd(factors[i][r], right, sums[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) hn::Store(sums[i], d, out + i * stride + j);
  };
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    add(j, [&](const typename Of::T* from) HWY_ATTR { return Of::load(d, from); });
  if (j < n) add(j, [&](const typename Of::T* from) HWY_ATTR { return LoadFirst<Of>(d, from, n - j); });
}

template <class Of, int M>
void SumRows(std::int64_t n, std::int64_t k, const float* a, std::int64_t a_row, std::int64_t a_col,
             const typename Of::T* b, std::int64_t b_row, float* out, std::int64_t stride) {
  constexpr int kRows = M == 1 ? 8 : M == 2 ? 4 : 2;  // M * kRows factors stay in registers
  std::int64_t step = 0;
  for (; step + kRows <= k; step += kRows)
    AddRows<Of, M, kRows>(n, a + step * a_col, a_row, a_col, b + step * b_row, b_row, out, stride, step == 0);
  for (; step < k; ++step)
    AddRows<Of, M, 1>(n, a + step * a_col, a_row, a_col, b + step * b_row, b_row, out, stride, step == 0);
}

template <class Of>
void SkinnyOf(const SkinnyBlock& s, std::int64_t m, std::int64_t n, float* out, std::int64_t stride) {
  const auto* b = static_cast<const typename Of::T*>(s.b);
  if (s.k == 0)
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(out + i * stride, n, 0.0f);
  const bool dots = s.b_row == 1 && s.a_col == 1;
  const auto run = [&]<int M>(std::int64_t i) {
    const float* a = s.a + i * s.a_row;
    if (dots)
      DotRows<Of, M>(n, s.k, a, s.a_row, b, s.b_col, out + i * stride, stride);
    else
      SumRows<Of, M>(n, s.k, a, s.a_row, s.a_col, b, s.b_row, out + i * stride, stride);
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

void Skinny(const SkinnyBlock& s, std::int64_t m, std::int64_t n, float* out, std::int64_t stride) {
  switch (s.dtype) {
    case hal::DType::bf16:
      return SkinnyOf<Stored<hal::DType::bf16>>(s, m, n, out, stride);
    case hal::DType::f16:
      return SkinnyOf<Stored<hal::DType::f16>>(s, m, n, out, stride);
    default:
      return SkinnyOf<Stored<hal::DType::f32>>(s, m, n, out, stride);
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
  const std::int64_t tiles_n = work.tiles_n(), m = work.m, n = work.n, k = work.k;
  const MatmulOperands o = matmul_operands(work, args, 0);
  // Element `index` of a tensor whose first is `first`.
  const auto element = [](const float* first, hal::DType dtype, std::int64_t index) {
    return reinterpret_cast<const std::byte*>(first) + index * static_cast<std::int64_t>(hal::size_of(dtype));
  };
  const bool narrow = work.dtype != hal::DType::f32;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t batch = item / tiles_n, j0 = item % tiles_n * work.tile_n;
    const std::int64_t columns = std::min<std::int64_t>(work.tile_n, n - j0), stride = round_up(columns, 16);
    const auto [sums, wide] = thread_scratch({m * stride, narrow ? m * k : 0});
    const float* a = o.a + (narrow ? 0 : batch * m * k);
    if (narrow) {
      widen(element(o.a, work.dtype, batch * m * k), work.dtype, m * k, wide);
      a = wide;
    }
    HWY_DYNAMIC_DISPATCH(Skinny)
    ({a, element(o.b, work.dtype, batch * k * n + j0 * o.b_col), work.dtype, k, o.a_row, o.a_col, o.b_row,
      o.b_col},
     m, columns, sums, stride);
    const std::int64_t at = batch * m * n + j0;
    const Epilogue epilogue{work.activation, o.bias == nullptr ? nullptr : o.bias + j0,
                            o.residual == nullptr ? nullptr : element(o.residual, work.result, at),
                            work.result};
    apply_epilogue(epilogue, m, columns, sums, stride, const_cast<std::byte*>(element(o.c, work.result, at)),
                   n);
  }
}

}  // namespace meshloom::backends::cpu
#endif
