// NF4 weights times a few rows: each weight is read once, dequantized in registers and multiplied by every row of x,
// so that the product takes the time of reading 4 bits per weight, not 32.
#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/quantized/dequantize_nf4.h"
#include "kernels/nf4_matmul/nf4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/quantized/nf4_matmul_few_rows.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The dot products of one row of weights with M rows of x, x_row floats apart.
using Sums = float[8];

#if HWY_TARGET != HWY_SCALAR && HWY_MAX_BYTES >= 32
using D = hn::CappedTag<float, 8>;

using Bits = hn::RebindToUnsigned<D>;

// The levels of the eight codes of a word: lane i has bits 4 i to 4 i + 3, of which the highest selects the table.
HWY_INLINE hn::Vec<D> Level(hn::Vec<D> low, hn::Vec<D> high, hn::Vec<Bits> shifts,
                            const std::uint8_t* codes) {
  const D d;
  const Bits bits;
  std::uint32_t word;
  std::memcpy(&word, codes, 4);
  const auto shifted = hn::Shr(hn::Set(bits, word), shifts);
  const auto index = hn::IndicesFromVec(d, hn::And(shifted, hn::Set(bits, 7)));
  // The selecting bit, moved to the sign, is the lane's mask.
  const auto sign = hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<D>(), hn::ShiftLeft<28>(shifted)));
  return hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d, sign)), hn::TableLookupLanes(high, index),
                        hn::TableLookupLanes(low, index));
}

template <int M>
HWY_INLINE void Row(const Nf4Weights& w, std::int64_t k, const float* x, std::int64_t x_row, Sums& out) {
  const D d;
  const auto low = hn::LoadU(d, kernels::nf4::kLevels.data()),
             high = hn::LoadU(d, kernels::nf4::kLevels.data() + 8);
  const auto shifts = hn::ShiftLeft<2>(hn::Iota(Bits(), 0));
  const std::uint8_t* codes = w.codes + w.row * w.code_row;
  hn::Vec<D> sums[M];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) sums[i] = hn::Zero(d);
  std::int64_t at = 0, block = 0;
  for (; at < k; ++block) {
    const std::int64_t end = std::min(k, at + w.block);
    const auto factor = hn::Set(d, w.scale(block));
    hwy::Prefetch(codes + at / 2 + 512);
    for (; at + 8 <= end; at += 8) {
      const auto weights = hn::Mul(Level(low, high, shifts, codes + at / 2), factor);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) sums[i] = hn::MulAdd(weights, hn::LoadU(d, x + i * x_row + at), sums[i]);
    }
    if (at < end) {  // the rest of the last block; the bytes of a row are padded to a whole word
      alignas(32) float rest[8] = {}, weights[8];
      hn::Store(hn::Mul(Level(low, high, shifts, codes + at / 2), factor), d, weights);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) {
        std::copy(x + i * x_row + at, x + i * x_row + end, rest);
        sums[i] = hn::MulAdd(hn::Load(d, weights), hn::Load(d, rest), sums[i]);
      }
      at = end;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) out[i] = hn::GetLane(hn::SumOfLanes(d, sums[i]));
}
#else
// Vectors too short for a table of sixteen floats.
template <int M>
void Row(const Nf4Weights& w, std::int64_t k, const float* x, std::int64_t x_row, Sums& out) {
  constexpr std::int64_t kAtOnce = 256;
  float weights[kAtOnce];
  std::fill_n(out, M, 0.0f);
  for (std::int64_t at = 0; at < k; at += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, k - at);
    dequantize_nf4(w.from(0, at), count, weights);
    for (int i = 0; i < M; ++i)
      for (std::int64_t j = 0; j < count; ++j) out[i] += weights[j] * x[i * x_row + at + j];
  }
}
#endif

// Rows [begin, end) of the weights times M rows of x.
template <int M>
void Rows(const Nf4Weights& w, std::int64_t begin, std::int64_t end, const MatmulWork& work, const float* x,
          const float* bias, const float* residual, float* y) {
  for (std::int64_t row = begin; row < end; ++row) {
    Sums sums;
    Row<M>(w.from(row, 0), work.k, x, work.k, sums);
    for (std::int64_t i = 0; i < M; ++i) {
      const std::int64_t at = i * work.n + row;
      y[at] = sums[i] + (bias ? bias[row] : 0.0f) + (residual ? residual[at] : 0.0f);
    }
  }
}

void FewRows(const Nf4Weights& w, std::int64_t begin, std::int64_t end, const MatmulWork& work,
             const float* x, const float* bias, const float* residual, float* y) {
  constexpr decltype(&Rows<1>) kRows[] = {Rows<1>, Rows<2>, Rows<3>, Rows<4>,
                                          Rows<5>, Rows<6>, Rows<7>, Rows<8>};
  constexpr std::int64_t kMaxRows = 8;
  for (std::int64_t i = 0; i < work.m; i += kMaxRows)
    kRows[std::min(kMaxRows, work.m - i) - 1](w, begin, end, work, x + i * work.k, bias,
                                              residual ? residual + i * work.n : nullptr, y + i * work.n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(FewRows);

// One work item: tile_n rows of the weights.
void run_nf4_matmul_few_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<MatmulWork>(args.constants);
  const MatmulOperands o = matmul_operands(work, args, 0);
  const Nf4Weights weights =
      nf4_weights(reinterpret_cast<const std::uint8_t*>(o.b), o.scales, o.steps, work.k, work.block);
  HWY_DYNAMIC_DISPATCH(FewRows)
  (weights, std::int64_t{begin} * work.tile_n,
   std::min<std::int64_t>(work.n, std::int64_t{end} * work.tile_n), work, o.a, o.bias, o.residual, o.c);
}

}  // namespace meshloom::backends::cpu
#endif
