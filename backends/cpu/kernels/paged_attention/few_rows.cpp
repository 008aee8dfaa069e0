#include "backends/cpu/kernels/paged_attention/few_rows.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/paged_attention/few_rows.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/stored_floats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// Rows that are multiplied at once, by two vectors of keys or kWide vectors of values: their sums stay in registers.
constexpr bool kManyRegisters = hn::MaxLanes(D()) > 8;
constexpr int kRows = kManyRegisters ? 6 : 4, kWide = kManyRegisters ? 4 : 2;

std::int64_t Lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

// Calls run.operator()<n>() for n = `rows`, at most MOST.
template <int MOST, typename F>
HWY_INLINE void WithRows(std::int64_t rows, const F& run) {
  if constexpr (MOST > 1) {
    if (rows < MOST) {
      WithRows<MOST - 1>(rows, run);
      return;
    }
  }
  run.template operator()<MOST>();
}

template <bool PAIRS, int ROWS>
void Scores(std::int64_t d, const float* queries, const float* keys, float* scores) {
  const D tag;
  const hn::RebindToUnsigned<D> words;
  const std::int64_t lanes = Lanes();
  for (std::int64_t j = 0; j < kKeyTile; j += 2 * lanes) {
    V sums0[ROWS], sums1[ROWS];
    const auto add = [&](std::int64_t feature, V k0, V k1, bool first) HWY_ATTR {
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; ++i) {
        const V query = hn::Set(tag, queries[i * d + feature]);
        sums0[i] = first ? hn::Mul(query, k0) : hn::MulAdd(query, k0, sums0[i]);
        sums1[i] = first ? hn::Mul(query, k1) : hn::MulAdd(query, k1, sums1[i]);
      }
    };
    const auto step = [&](std::int64_t at, bool first) HWY_ATTR {
      const float* from = keys + at * kKeyTile + j;
      if constexpr (PAIRS) {
        const auto w0 = hn::BitCast(words, hn::LoadU(tag, from)),
                   w1 = hn::BitCast(words, hn::LoadU(tag, from + lanes));
        add(2 * at, hn::BitCast(tag, hn::ShiftLeft<16>(w0)), hn::BitCast(tag, hn::ShiftLeft<16>(w1)), first);
        const auto high = hn::Set(words, 0xffff0000u);
        add(2 * at + 1, hn::BitCast(tag, hn::And(w0, high)), hn::BitCast(tag, hn::And(w1, high)), false);
      } else {
        add(at, hn::LoadU(tag, from), hn::LoadU(tag, from + lanes), first);
      }
    };
    step(0, true);
    for (std::int64_t at = 1; at < (PAIRS ? d / 2 : d); ++at) step(at, false);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      hn::StoreU(sums0[i], tag, scores + i * kKeyTile + j);
      hn::StoreU(sums1[i], tag, scores + i * kKeyTile + j + lanes);
    }
  }
}

template <bool PAIRS>
void FewRowScores(std::int64_t rows, std::int64_t d, const float* queries, const float* keys, float* scores) {
  for (std::int64_t i = 0; i < rows; i += kRows)
    WithRows<kRows>(rows - i, [&]<int ROWS>() HWY_ATTR {
      Scores<PAIRS, ROWS>(d, queries + i * d, keys, scores + i * kKeyTile);
    });
}

// Features [0, VECTORS vectors) of rows of values, whose first byte is `offset` bytes behind the pointers.
template <class Of, int ROWS, int VECTORS>
void Sums(const float* weights, const std::byte* const* values, std::int64_t offset, kernels::Range shown,
          float* sums, std::int64_t stride, RowPrefetch* prefetch) {
  const D tag;
  const std::int64_t lanes = Lanes();
  V chain[ROWS][VECTORS];
  const auto step = [&](std::int64_t key, bool first) HWY_ATTR {
    const auto* from = reinterpret_cast<const typename Of::T*>(values[key] + offset);
    V row[VECTORS];
#pragma GCC unroll 8
    for (int j = 0; j < VECTORS; ++j) row[j] = Of::load(tag, from + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      const V weight = hn::Set(tag, weights[i * kKeyTile + key]);
#pragma GCC unroll 8
      for (int j = 0; j < VECTORS; ++j)
        chain[i][j] = first ? hn::Mul(weight, row[j]) : hn::MulAdd(weight, row[j], chain[i][j]);
    }
    if (prefetch) prefetch->next();
  };
  std::int64_t key = shown.begin;
  step(key++, true);
  for (; key < shown.end; ++key) step(key, false);
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < VECTORS; ++j) {
      float* to = sums + i * stride + j * lanes;
      hn::StoreU(hn::Add(chain[i][j], hn::LoadU(tag, to)), tag, to);
    }
}

template <class Of>
void FewRowSums(std::int64_t rows, std::int64_t features, const float* weights,
                const std::byte* const* values, kernels::Range shown, float* sums, std::int64_t stride,
                RowPrefetch* prefetch) {
  const std::int64_t lanes = Lanes(), wide = kWide * lanes;
  for (std::int64_t i = 0; i < rows; i += kRows) {
    for (std::int64_t column = 0; column < features;) {
      const std::int64_t offset = column * static_cast<std::int64_t>(sizeof(typename Of::T));
      const bool whole = column + wide <= features;
      WithRows<kRows>(rows - i, [&]<int ROWS>() HWY_ATTR {
        const float* of_rows = weights + i * kKeyTile;
        float* into = sums + i * stride + column;
        if (whole)
          Sums<Of, ROWS, kWide>(of_rows, values, offset, shown, into, stride, prefetch);
        else
          Sums<Of, ROWS, 1>(of_rows, values, offset, shown, into, stride, prefetch);
      });
      column += whole ? wide : lanes;
      prefetch = nullptr;
    }
  }
}

}  // namespace

void FewRowScoresOf(bool pairs, std::int64_t rows, std::int64_t d, const float* queries, const float* keys,
                    float* scores) {
  (pairs ? FewRowScores<true> : FewRowScores<false>)(rows, d, queries, keys, scores);
}

void FewRowSumsOf(hal::DType dtype, std::int64_t rows, std::int64_t features, const float* weights,
                  const std::byte* const* values, kernels::Range shown, float* sums, std::int64_t stride,
                  RowPrefetch* prefetch) {
  const auto run =
      dtype == hal::DType::bf16 ? FewRowSums<Stored<hal::DType::bf16>> : FewRowSums<Stored<hal::DType::f32>>;
  run(rows, features, weights, values, shown, sums, stride, prefetch);
}

}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Lanes);
HWY_EXPORT(FewRowScoresOf);
HWY_EXPORT(FewRowSumsOf);

void few_row_scores(std::int64_t rows, std::int64_t d, const float* queries, const float* keys,
                    bool bf16_pairs, float* scores) {
  HWY_DYNAMIC_DISPATCH(FewRowScoresOf)(bf16_pairs, rows, d, queries, keys, scores);
}

bool has_few_row_sums(std::int64_t features, hal::DType dtype) {
  return (dtype == hal::DType::f32 || dtype == hal::DType::bf16) &&
         features % HWY_DYNAMIC_DISPATCH(Lanes)() == 0;
}

void few_row_sums(std::int64_t rows, std::int64_t features, const float* weights,
                  const std::byte* const* values, kernels::Range shown, hal::DType dtype, float* sums,
                  std::int64_t stride, RowPrefetch& prefetch) {
  HWY_DYNAMIC_DISPATCH(FewRowSumsOf)
  (dtype, rows, features, weights, values, shown, sums, stride, &prefetch);
}

}  // namespace meshloom::backends::cpu
#endif
