// Packs operands as the inner loop of matmul_micro.h reads them: panels, strips, bf16 pairs.
#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/matmul_pack.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/gemm/micro_tile-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// into[i / WIDTH][k][i % WIDTH] = from[k * k_stride + i] for i < rows. A few k at a time, so that reads run along
// memory while writes stay within few pages.
template <int WIDTH>
void PackSideBySide(const float* from, std::int64_t k_stride, std::int64_t rows, std::int64_t k,
                    float* into) {
  constexpr std::int64_t kStep = 8;
  const std::int64_t whole = rows / WIDTH * WIDTH;
  for (std::int64_t k0 = 0; k0 < k; k0 += kStep) {
    const std::int64_t k1 = std::min(k, k0 + kStep);
    for (std::int64_t i = 0; i < whole; i += WIDTH)
      for (std::int64_t step = k0; step < k1; ++step)
        std::memcpy(into + i * k + step * WIDTH, from + step * k_stride + i, WIDTH * sizeof(float));
    if (whole == rows) continue;
    for (std::int64_t step = k0; step < k1; ++step) {
      float* to = into + whole * k + step * WIDTH;
      std::copy_n(from + step * k_stride + whole, rows - whole, to);
      std::fill(to + (rows - whole), to + WIDTH, 0.0f);
    }
  }
}

void PackRowsSideBySide(const float* from, std::int64_t k_stride, std::int64_t rows, std::int64_t k,
                        float* into) {
  PackSideBySide<kRows>(from, k_stride, rows, k, into);
}
void PackColumnsSideBySide(const float* from, std::int64_t k_stride, std::int64_t columns, std::int64_t k,
                           float* into) {
  // MaxLanes is the width on every instruction set but the scalable ones, which are not built.
  PackSideBySide<2 * static_cast<int>(hn::MaxLanes(D()))>(from, k_stride, columns, k, into);
}

// A row of pairs from two rows of bf16 numbers; `second` may be null and then counts as zeros.
HWY_INLINE void InterleaveRow(const std::uint16_t* first, const std::uint16_t* second, std::int64_t columns,
                              float* into) {
  const hn::CappedTag<std::uint32_t, 16> d;
  const D df;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= columns; j += lanes) {
    auto word = hn::PromoteTo(d, hn::LoadU(d16, first + j));
    if (second) word = hn::Or(word, hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(d16, second + j))));
    hn::StoreU(hn::BitCast(df, word), df, into + j);
  }
  for (; j < columns; ++j)
    into[j] = std::bit_cast<float>(first[j] | (second ? std::uint32_t{second[j]} << 16 : 0u));
}

void InterleavePairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                     float* into) {
  for (std::int64_t row = 0; row < k; row += 2, into += columns)
    InterleaveRow(from + row * stride, row + 1 < k ? from + (row + 1) * stride : nullptr, columns, into);
}

// A few rows at a time, so that reads run along the rows while writes stay within few pages.
void PackPairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t n, float* into) {
  constexpr std::int64_t kStep = 16;
  const std::int64_t columns = micro_tile().columns, words = ceil_div(k, 2);
  for (std::int64_t k0 = 0; k0 < k; k0 += kStep)
    for (std::int64_t j = 0; j < n; j += columns) {
      const std::int64_t width = std::min(columns, n - j);
      float* to = into + j * words + k0 / 2 * columns;
      for (std::int64_t row = k0; row < std::min(k, k0 + kStep); row += 2, to += columns) {
        const std::uint16_t* first = from + row * stride + j;
        InterleaveRow(first, row + 1 < k ? first + stride : nullptr, width, to);
        std::fill(to + width, to + columns, 0.0f);
      }
    }
}
void TransposeByElement(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                        float* into, std::int64_t into_stride) {
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i) into[j * into_stride + i] = from[i * from_stride + j];
}

#if HWY_TARGET != HWY_SCALAR
// Transposes four columns. Every vector holds four columns of its row, followed by the same columns of the rows
// 4, 8 and 12 below, as many as fit.
template <typename DV, typename V = hn::Vec<DV>>
HWY_INLINE void TransposeFours(DV d, V r0, V r1, V r2, V r3, float* to, std::int64_t stride) {
  const hn::Repartition<double, DV> dd;
  const auto a = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1)),
             b = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1)),
             f = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, a, b)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, a, b)), d, to + stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, e, f)), d, to + 2 * stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, e, f)), d, to + 3 * stride);
}
#endif

// Transposes MaxLanes rows at a time in blocks of four columns, and the columns beyond the last block by element.
// Returns the first row that is left over.
template <class DV, typename Row>
std::int64_t TransposeRows(DV d, std::int64_t i, std::int64_t rows, std::int64_t columns, const float* from,
                           std::int64_t from_stride, float* into, std::int64_t into_stride, Row fours) {
  constexpr std::int64_t kAtOnce = hn::MaxLanes(DV());
  const std::int64_t whole = columns / 4 * 4;
  for (; i + kAtOnce <= rows; i += kAtOnce) {
    const float* at = from + i * from_stride;
    for (std::int64_t j = 0; j < whole; j += 4) {
      const auto row = [&](std::int64_t r) HWY_ATTR { return fours(at + r * from_stride + j); };
      TransposeFours(d, row(0), row(1), row(2), row(3), into + j * into_stride + i, into_stride);
    }
    TransposeByElement(at + whole, from_stride, kAtOnce, columns - whole, into + whole * into_stride + i,
                       into_stride);
  }
  return i;
}

void Transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d4;
  const auto one = [&](const float* at) HWY_ATTR { return hn::LoadU(d4, at); };
#if HWY_MAX_BYTES >= 32
  const hn::CappedTag<float, 8> d8;
  // Four elements of a row, followed by four of the row 4 below.
  const auto two = [&](const float* at)
                       HWY_ATTR { return hn::Combine(d8, one(at + 4 * from_stride), one(at)); };
#if HWY_MAX_BYTES >= 64
  const hn::CappedTag<float, 16> d16;
  const auto four = [&](const float* at)
                        HWY_ATTR { return hn::Combine(d16, two(at + 8 * from_stride), two(at)); };
  i = TransposeRows(d16, i, rows, columns, from, from_stride, into, into_stride, four);
#endif
  i = TransposeRows(d8, i, rows, columns, from, from_stride, into, into_stride, two);
#endif
  i = TransposeRows(d4, i, rows, columns, from, from_stride, into, into_stride, one);
#endif
  TransposeByElement(from + i * from_stride, from_stride, rows - i, columns, into + i, into_stride);
}

// Rows of `from` become columns of `into`, which is `width` floats wide. Runs of k are long enough for the hardware
// prefetcher, and short enough for the written lines to stay in cache until they are full.
void PackAlongK(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t k, std::int64_t width,
                float* into) {
  constexpr std::int64_t kRun = 64, kGroup = 16;
  for (std::int64_t step = 0; step < k; step += kRun) {
    const std::int64_t run = std::min(kRun, k - step);
    for (std::int64_t i = 0; i < rows; i += kGroup) {
      const std::int64_t count = std::min(kGroup, rows - i);
      const float* at = from + i * stride + step;
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t j = kRun; j < std::min(2 * kRun, k - step); j += 16)
          hwy::Prefetch(at + r * stride + j);
      Transpose(at, stride, count, run, into + step * width + i, width);
    }
  }
}

// Block by block through the L1 cache; each row of the result is written a cache line at a time.
void TransposePairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                    float* into, std::int64_t into_stride) {
  constexpr std::int64_t kWords = 16, kColumns = 64;
  HWY_ALIGN float block[kWords * kColumns];
  for (std::int64_t j = 0; j < columns; j += kColumns) {
    const std::int64_t width = std::min(kColumns, columns - j);
    for (std::int64_t k0 = 0; k0 < k; k0 += 2 * kWords) {
      const std::int64_t steps = std::min(2 * kWords, k - k0);
      InterleavePairs(from + k0 * stride + j, stride, steps, width, block);
      Transpose(block, width, ceil_div(steps, 2), width, into + j * into_stride + k0 / 2, into_stride);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(InterleavePairs);
HWY_EXPORT(PackPairs);
HWY_EXPORT(TransposePairs);
HWY_EXPORT(Transpose);
HWY_EXPORT(PackRowsSideBySide);
HWY_EXPORT(PackColumnsSideBySide);
HWY_EXPORT(PackAlongK);

void interleave_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                      float* into) {
  HWY_DYNAMIC_DISPATCH(InterleavePairs)(from, stride, k, columns, into);
}

BView pack_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t n,
                 float* into) {
  const std::int64_t columns = micro_tile().columns;
  HWY_DYNAMIC_DISPATCH(PackPairs)(from, stride, k, n, into);
  return {into, columns, columns * ceil_div(k, 2)};
}

void transpose_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                     float* into, std::int64_t into_stride) {
  HWY_DYNAMIC_DISPATCH(TransposePairs)(from, stride, k, columns, into, into_stride);
}

void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, from_stride, rows, columns, into, into_stride);
}

std::int64_t padded_stride(std::int64_t floats) { return (ceil_div(floats, 16) | 1) * 16; }

namespace {

// Groups of `width` rows, each stored k-major: the k-th elements of a group are neighbours.
void pack_by_column(const float* data, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t k,
                    std::int64_t width, float* into) {
  for (std::int64_t i = 0; i < rows; i += width, into += width * k) {
    const float* from = data + i * row;
    const std::int64_t count = std::min(width, rows - i);
    if (count < width) std::fill_n(into, width * k, 0.0f);
    if (col == 1)
      HWY_DYNAMIC_DISPATCH(PackAlongK)(from, row, count, k, width, into);
    else
      for (std::int64_t step = 0; step < k; ++step)
        for (std::int64_t r = 0; r < count; ++r) into[step * width + r] = from[r * row + step * col];
  }
}

}  // namespace

std::int64_t packed_a_floats(std::int64_t m, std::int64_t k) {
  return std::max(m * padded_stride(k), round_up(m, micro_tile().rows) * k);
}

AView pack_a(const float* data, std::int64_t row, std::int64_t col, std::int64_t m, std::int64_t k,
             float* into) {
  const std::int64_t rows = micro_tile().rows;
  if (row == 1) {
    HWY_DYNAMIC_DISPATCH(PackRowsSideBySide)(data, col, m, k, into);
    return {into, 1, rows, rows * k};
  }
  const std::int64_t stride = padded_stride(k);
  for (std::int64_t i = 0; i < m; ++i) {
    if (col == 1) {
      for (std::int64_t step = 0; step < k; step += 16) hwy::Prefetch(data + (i + 2) * row + step);
      std::memcpy(into + i * stride, data + i * row, static_cast<std::size_t>(k) * sizeof(float));
    } else
      for (std::int64_t step = 0; step < k; ++step) into[i * stride + step] = data[i * row + step * col];
  }
  return plain_a(into, stride, 1);
}
BView pack_b(const float* data, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t n,
             float* into) {
  const std::int64_t columns = micro_tile().columns;
  if (col == 1)
    HWY_DYNAMIC_DISPATCH(PackColumnsSideBySide)(data, row, n, k, into);
  else
    pack_by_column(data, col, row, n, k, columns, into);
  return {into, columns, columns * k};
}

}  // namespace meshloom::backends::cpu
#endif
