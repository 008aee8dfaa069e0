#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"

#include <bit>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/flash_attention/flash_attention_vector.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/gemm/matmul_math-inl.h"
#include "backends/cpu/simd/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

std::int64_t Lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

// A row whose keys are all masked has row_max -infinity; 0 in its place keeps exp(-infinity) = 0.
HWY_INLINE V Finite(D d, V row_max) {
  return hn::IfThenZeroElse(hn::Lt(row_max, hn::Set(d, -3e38f)), row_max);
}

// exp(x) for x <= 0, and exactly 0 where that is negligible: what is masked changes no bit of a sum.
HWY_INLINE V SoftmaxWeight(D d, V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), VectorSoftmaxExp(d, x));
}

// Two vectors at a time: a whole cache line of each row. Weights are added in four sums, as softmax_tile_rows does.
void SoftmaxColumns(float* scores, std::int64_t keys, std::int64_t queries, std::int64_t stride,
                    std::int64_t first_key, float* row_max, float* row_sum, float* rescale) {
  const D d;
  const std::int64_t n = Lanes(), begin = -(first_key % 4);
  for (std::int64_t i = 0; i < queries; i += 2 * n) {
    const V before0 = hn::LoadU(d, row_max + i), before1 = hn::LoadU(d, row_max + i + n);
    V max0 = before0, max1 = before1;
    for (std::int64_t j = 0; j < keys; ++j) {
      const float* at = scores + j * stride + i;
      max0 = hn::Max(max0, hn::LoadU(d, at));
      max1 = hn::Max(max1, hn::LoadU(d, at + n));
    }
    const V shift0 = Finite(d, max0), shift1 = Finite(d, max1);
    const auto weigh = [&](std::int64_t j, V& sum0, V& sum1) {
      if (j < 0 || j >= keys) return;
      float* at = scores + j * stride + i;
      const V p0 = SoftmaxWeight(d, hn::Sub(hn::LoadU(d, at), shift0));
      const V p1 = SoftmaxWeight(d, hn::Sub(hn::LoadU(d, at + n), shift1));
      sum0 = hn::Add(sum0, p0);
      sum1 = hn::Add(sum1, p1);
      hn::StoreU(p0, d, at);
      hn::StoreU(p1, d, at + n);
    };
    V a0 = hn::Zero(d), b0 = a0, c0 = a0, d0 = a0, a1 = a0, b1 = a0, c1 = a0, d1 = a0;
    for (std::int64_t j = begin; j < keys; j += 4) {
      weigh(j, a0, a1);
      weigh(j + 1, b0, b1);
      weigh(j + 2, c0, c1);
      weigh(j + 3, d0, d1);
    }
    const V sum0 = hn::Add(hn::Add(a0, b0), hn::Add(c0, d0)),
            sum1 = hn::Add(hn::Add(a1, b1), hn::Add(c1, d1));
    const V factor0 = SoftmaxWeight(d, hn::Sub(before0, shift0));
    const V factor1 = SoftmaxWeight(d, hn::Sub(before1, shift1));
    hn::StoreU(max0, d, row_max + i);
    hn::StoreU(max1, d, row_max + i + n);
    hn::StoreU(factor0, d, rescale + i);
    hn::StoreU(factor1, d, rescale + i + n);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, row_sum + i), factor0, sum0), d, row_sum + i);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, row_sum + i + n), factor1, sum1), d, row_sum + i + n);
  }
}

void SoftmaxTileRows(float* scores, std::int64_t rows, std::int64_t keys, float* row_max, float* row_sum,
                     float* rescale) {
  const D d;
  const hn::CappedTag<float, 4> four;
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * keys;
    const float before = row_max[i];
    V max = hn::Set(d, before);
    for (std::int64_t j = 0; j < keys; j += Lanes()) max = hn::Max(max, hn::LoadU(d, row + j));
    const float peak = hn::GetLane(hn::MaxOfLanes(d, max));
    const V shift = hn::Set(d, peak < -3e38f ? 0.0f : peak);
    for (std::int64_t j = 0; j < keys; j += Lanes())
      hn::StoreU(SoftmaxWeight(d, hn::Sub(hn::LoadU(d, row + j), shift)), d, row + j);
    auto sums = hn::Zero(four);
    for (std::int64_t j = 0; j < keys; j += 4) sums = hn::Add(sums, hn::LoadU(four, row + j));
    float parts[4];
    hn::StoreU(sums, four, parts);
    const V factor = SoftmaxWeight(d, hn::Sub(hn::Set(d, before), shift)),
            sum = hn::Set(d, (parts[0] + parts[1]) + (parts[2] + parts[3]));
    row_max[i] = peak;
    rescale[i] = hn::GetLane(factor);
    row_sum[i] = hn::GetLane(hn::MulAdd(hn::Set(d, row_sum[i]), factor, sum));
  }
}

void SoftmaxRows(float* scores, std::int64_t queries, std::int64_t keys, std::int64_t stride, float* row_max,
                 float* row_sum, float* rescale) {
  const D d;
  const hn::CappedTag<float, 1> one;
  for (std::int64_t i = 0; i < queries; ++i) {
    float* row = scores + i * stride;
    const float before = row_max[i];
    V max = hn::Set(d, before);
    std::int64_t j = 0;
    for (; j + Lanes() <= keys; j += Lanes()) max = hn::Max(max, hn::LoadU(d, row + j));
    float peak = hn::GetLane(hn::MaxOfLanes(d, max));
    for (std::int64_t rest = j; rest < keys; ++rest) peak = std::max(peak, row[rest]);
    const float shift = peak < -3e38f ? 0.0f : peak;
    V sums = hn::Zero(d);
    for (j = 0; j + Lanes() <= keys; j += Lanes()) {
      const V p = VectorExp(d, hn::Sub(hn::LoadU(d, row + j), hn::Set(d, shift)));
      sums = hn::Add(sums, p);
      hn::StoreU(p, d, row + j);
    }
    float sum = hn::GetLane(hn::SumOfLanes(d, sums));
    for (; j < keys; ++j) sum += row[j] = hn::GetLane(VectorExp(one, hn::Set(one, row[j] - shift)));
    row_max[i] = peak;
    rescale[i] = hn::GetLane(VectorExp(one, hn::Set(one, before - shift)));
    row_sum[i] = row_sum[i] * rescale[i] + sum;
  }
}

void BackwardColumns(float* scores, float* products, std::int64_t keys, std::int64_t queries,
                     std::int64_t stride, const float* lse, const float* delta) {
  const D d;
  const std::int64_t n = Lanes();
  for (std::int64_t i = 0; i < queries; i += 2 * n) {
    const V shift0 = hn::LoadU(d, lse + i), less0 = hn::LoadU(d, delta + i);
    const V shift1 = hn::LoadU(d, lse + i + n), less1 = hn::LoadU(d, delta + i + n);
    for (std::int64_t j = 0; j < keys; ++j) {
      float *at = scores + j * stride + i, *with = products + j * stride + i;
      const V p0 = VectorSoftmaxExp(d, hn::Sub(hn::LoadU(d, at), shift0));
      const V p1 = VectorSoftmaxExp(d, hn::Sub(hn::LoadU(d, at + n), shift1));
      hn::StoreU(p0, d, at);
      hn::StoreU(p1, d, at + n);
      hn::StoreU(hn::Mul(p0, hn::Sub(hn::LoadU(d, with), less0)), d, with);
      hn::StoreU(hn::Mul(p1, hn::Sub(hn::LoadU(d, with + n), less1)), d, with + n);
    }
  }
}

void BackwardRows(float* scores, float* products, std::int64_t queries, std::int64_t keys,
                  std::int64_t stride, const float* lse, const float* delta) {
  const D d;
  const hn::CappedTag<float, 1> one;
  for (std::int64_t i = 0; i < queries; ++i) {
    float *at = scores + i * stride, *with = products + i * stride;
    std::int64_t j = 0;
    for (; j + Lanes() <= keys; j += Lanes()) {
      const V p = VectorExp(d, hn::Sub(hn::LoadU(d, at + j), hn::Set(d, lse[i])));
      hn::StoreU(p, d, at + j);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, with + j), hn::Set(d, delta[i]))), d, with + j);
    }
    for (; j < keys; ++j) {
      at[j] = hn::GetLane(VectorExp(one, hn::Set(one, at[j] - lse[i])));
      with[j] = at[j] * (with[j] - delta[i]);
    }
  }
}

template <class DX>
HWY_INLINE void CapLanes(DX d, float* scores, float* softcap_grad, float cap) {
  const auto y = math::Tanh(d, hn::Mul(hn::LoadU(d, scores), hn::Set(d, 1 / cap)));
  hn::StoreU(hn::Mul(y, hn::Set(d, cap)), d, scores);
  if (softcap_grad) hn::StoreU(hn::NegMulAdd(y, y, hn::Set(d, 1.0f)), d, softcap_grad);
}

void CapScores(float* scores, float* softcap_grad, std::int64_t rows, std::int64_t columns,
               std::int64_t stride, float cap) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float *row = scores + i * stride, *with = softcap_grad ? softcap_grad + i * stride : nullptr;
    std::int64_t j = 0;
    for (; j + Lanes() <= columns; j += Lanes()) CapLanes(D(), row + j, with ? with + j : nullptr, cap);
    for (; j < columns; ++j) CapLanes(hn::CappedTag<float, 1>(), row + j, with ? with + j : nullptr, cap);
  }
}

void BiasScores(float* scores, std::int64_t rows, std::int64_t columns, std::int64_t stride, float slope,
                std::int64_t first, int per_row, int per_column) {
  const D d;
  const V lanes = hn::Mul(hn::Iota(d, 0), hn::Set(d, static_cast<float>(per_column)));
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * stride;
    const std::int64_t distance = first + i * per_row;
    std::int64_t j = 0;
    for (; j + Lanes() <= columns; j += Lanes()) {
      const V far = hn::Add(hn::Set(d, static_cast<float>(distance + j * per_column)), lanes);
      hn::StoreU(hn::NegMulAdd(hn::Set(d, slope), hn::Abs(far), hn::LoadU(d, row + j)), d, row + j);
    }
    for (; j < columns; ++j) row[j] -= slope * static_cast<float>(std::abs(distance + j * per_column));
  }
}

void MultiplyRows(float* data, const float* factors, std::int64_t rows, std::int64_t columns,
                  std::int64_t stride) {
  const D d;
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = data + i * stride;
    const float* by = factors + i * stride;
    std::int64_t j = 0;
    for (; j + Lanes() <= columns; j += Lanes())
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::LoadU(d, by + j)), d, row + j);
    for (; j < columns; ++j) row[j] *= by[j];
  }
}

void AddRows(float* data, std::int64_t stride, const float* terms, std::int64_t terms_stride,
             std::int64_t rows, std::int64_t columns) {
  const D d;
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = data + i * stride;
    const float* with = terms + i * terms_stride;
    std::int64_t j = 0;
    for (; j + Lanes() <= columns; j += Lanes())
      hn::StoreU(hn::Add(hn::LoadU(d, row + j), hn::LoadU(d, with + j)), d, row + j);
    for (; j < columns; ++j) row[j] += with[j];
  }
}

void ScaleRows(float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
               const float* factors) {
  const D d;
  for (std::int64_t i = 0; i < rows; ++i) {
    if (factors[i] == 1.0f) continue;
    float* row = data + i * stride;
    const V factor = hn::Set(d, factors[i]);
    std::int64_t j = 0;
    for (; j + Lanes() <= columns; j += Lanes())
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), factor), d, row + j);
    for (; j < columns; ++j) row[j] *= factors[i];
  }
}

// `high` is truncated, so that the remainder is exact; `low` is the remainder, rounded.
void SplitBf16(const float* from, std::int64_t count, std::uint16_t* high, std::uint16_t* low) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto upper = [&](hn::Vec<decltype(d)> x, std::uint16_t* into) HWY_ATTR {
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, x)))), d16, into);
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, from + i);
    const auto cut = hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0xffff0000u)));
    const auto rest = hn::BitCast(du, hn::Sub(x, cut));
    upper(x, high + i);
    upper(hn::BitCast(d, hn::Add(rest, hn::Set(du, 0x8000u))), low + i);
  }
  for (; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    high[i] = static_cast<std::uint16_t>(bits >> 16);
    const auto rest = std::bit_cast<std::uint32_t>(from[i] - std::bit_cast<float>(bits & 0xffff0000u));
    low[i] = static_cast<std::uint16_t>((rest + 0x8000u) >> 16);
  }
}

void ScaledCopy(float* to, const float* from, std::int64_t count, float factor) {
  const D d;
  std::int64_t i = 0;
  for (; i + Lanes() <= count; i += Lanes())
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), d, to + i);
  for (; i < count; ++i) to[i] = from[i] * factor;
}

float DotProduct(const float* a, const float* b, std::int64_t count) {
  const D d;
  V sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + Lanes() <= count; i += Lanes())
    sums = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(SoftmaxColumns);
HWY_EXPORT(SoftmaxTileRows);
HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(BackwardColumns);
HWY_EXPORT(BackwardRows);
HWY_EXPORT(CapScores);
HWY_EXPORT(BiasScores);
HWY_EXPORT(MultiplyRows);
HWY_EXPORT(AddRows);
HWY_EXPORT(ScaleRows);
HWY_EXPORT(ScaledCopy);
HWY_EXPORT(SplitBf16);
HWY_EXPORT(DotProduct);

void softmax_columns(float* scores, std::int64_t keys, std::int64_t queries, std::int64_t stride,
                     std::int64_t first_key, float* row_max, float* row_sum, float* rescale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxColumns)(scores, keys, queries, stride, first_key, row_max, row_sum, rescale);
}
void softmax_tile_rows(float* scores, std::int64_t rows, std::int64_t keys, float* row_max, float* row_sum,
                       float* rescale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxTileRows)(scores, rows, keys, row_max, row_sum, rescale);
}
void softmax_rows(float* scores, std::int64_t queries, std::int64_t keys, std::int64_t stride, float* row_max,
                  float* row_sum, float* rescale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRows)(scores, queries, keys, stride, row_max, row_sum, rescale);
}
void backward_columns(float* scores, float* products, std::int64_t keys, std::int64_t queries,
                      std::int64_t stride, const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(BackwardColumns)(scores, products, keys, queries, stride, lse, delta);
}
void backward_rows(float* scores, float* products, std::int64_t queries, std::int64_t keys,
                   std::int64_t stride, const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(BackwardRows)(scores, products, queries, keys, stride, lse, delta);
}
void cap_scores(float* scores, float* softcap_grad, std::int64_t rows, std::int64_t columns,
                std::int64_t stride, float cap) {
  HWY_DYNAMIC_DISPATCH(CapScores)(scores, softcap_grad, rows, columns, stride, cap);
}
void bias_scores(float* scores, std::int64_t rows, std::int64_t columns, std::int64_t stride, float slope,
                 std::int64_t first, int per_row, int per_column) {
  HWY_DYNAMIC_DISPATCH(BiasScores)(scores, rows, columns, stride, slope, first, per_row, per_column);
}
void multiply_rows(float* data, const float* factors, std::int64_t rows, std::int64_t columns,
                   std::int64_t stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyRows)(data, factors, rows, columns, stride);
}
void add_rows(float* data, std::int64_t stride, const float* terms, std::int64_t terms_stride,
              std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(AddRows)(data, stride, terms, terms_stride, rows, columns);
}
void scale_rows(float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                const float* factors) {
  HWY_DYNAMIC_DISPATCH(ScaleRows)(data, rows, columns, stride, factors);
}
void split_bf16(const float* from, std::int64_t count, std::uint16_t* high, std::uint16_t* low) {
  HWY_DYNAMIC_DISPATCH(SplitBf16)(from, count, high, low);
}
void scaled_copy(float* to, const float* from, std::int64_t count, float factor) {
  HWY_DYNAMIC_DISPATCH(ScaledCopy)(to, from, count, factor);
}
float dot_product(const float* a, const float* b, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(DotProduct)(a, b, count);
}

}  // namespace meshloom::backends::cpu
#endif
