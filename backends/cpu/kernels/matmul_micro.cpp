#include "backends/cpu/kernels/matmul_micro.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/matmul_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/matmul_micro.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Sixteen vector registers hold 6 x 2 sums, thirty-two hold 12 x 2.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kRows = 12;
#else
constexpr int kRows = 6;
#endif
using D = hn::CappedTag<float, 16>;

std::int64_t Rows() { return kRows; }
std::int64_t Columns() { return 2 * static_cast<std::int64_t>(hn::Lanes(D())); }

template <int ROWS>
HWY_NOINLINE void Micro(std::int64_t k, const float* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_col,
                        const float* HWY_RESTRICT b, std::int64_t b_row, float* HWY_RESTRICT c,
                        std::int64_t c_stride, bool accumulate) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> left[ROWS], right[ROWS];
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) left[i] = right[i] = hn::Zero(d);
  for (std::int64_t step = 0; step < k; ++step) {
    const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
      const auto factor = hn::Set(d, a[i * a_row]);
      left[i] = hn::MulAdd(factor, b0, left[i]);
      right[i] = hn::MulAdd(factor, b1, right[i]);
    }
    a += a_col;
    b += b_row;
  }
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
    float* row = c + i * c_stride;
    if (accumulate) {
      left[i] = hn::Add(left[i], hn::LoadU(d, row));
      right[i] = hn::Add(right[i], hn::LoadU(d, row + lanes));
    }
    hn::StoreU(left[i], d, row);
    hn::StoreU(right[i], d, row + lanes);
  }
}

using MicroFunction = void (*)(std::int64_t, const float*, std::int64_t, std::int64_t, const float*,
                               std::int64_t, float*, std::int64_t, bool);

MicroFunction MicroFor(std::int64_t rows) {
  static constexpr MicroFunction kTable[] = {
    Micro<1>,
    Micro<2>,
    Micro<3>,
    Micro<4>,
    Micro<5>,
    Micro<6>,
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
    Micro<7>,
    Micro<8>,
    Micro<9>,
    Micro<10>,
    Micro<11>,
    Micro<12>,
#endif
  };
  return kTable[rows - 1];
}

void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, float* c,
          std::int64_t c_stride, bool accumulate) {
  const std::int64_t columns = Columns();
  for (std::int64_t j = 0; j < n; j += columns) {
    const float* panel = b.data + j / columns * b.panel;
    const std::int64_t width = std::min(columns, n - j);
    for (std::int64_t i = 0; i < m; i += kRows) {
      const std::int64_t rows = std::min<std::int64_t>(kRows, m - i);
      const float* strip = a.data + i / kRows * a.strip;
      float* to = c + i * c_stride + j;
      if (width == columns) {
        MicroFor(rows)(k, strip, a.row, a.col, panel, b.row, to, c_stride, accumulate);
        continue;
      }
      HWY_ALIGN float edge[kRows * 2 * HWY_MAX_BYTES / sizeof(float)];
      if (accumulate)
        for (std::int64_t r = 0; r < rows; ++r) std::copy_n(to + r * c_stride, width, edge + r * columns);
      MicroFor(rows)(k, strip, a.row, a.col, panel, b.row, edge, columns, accumulate);
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * columns, width, to + r * c_stride);
    }
  }
}

// Four-by-four blocks through registers, the rest by element.
void Transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Repartition<double, decltype(d)> dd;
  (void)du;
  for (; i + 4 <= rows; i += 4) {
    std::int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      const float* at = from + i * from_stride + j;
      const auto r0 = hn::LoadU(d, at), r1 = hn::LoadU(d, at + from_stride);
      const auto r2 = hn::LoadU(d, at + 2 * from_stride), r3 = hn::LoadU(d, at + 3 * from_stride);
      const auto a = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1)),
                 b = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
      const auto e = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1)),
                 f = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
      float* to = into + j * into_stride + i;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, a, b)), d, to);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, a, b)), d, to + into_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, e, f)), d, to + 2 * into_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, e, f)), d, to + 3 * into_stride);
    }
    for (; j < columns; ++j)
      for (std::int64_t r = 0; r < 4; ++r) into[j * into_stride + i + r] = from[(i + r) * from_stride + j];
  }
#endif
  for (; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) into[j * into_stride + i] = from[i * from_stride + j];
}

// into[i / WIDTH][k][i % WIDTH] for i < rows, from rows of k that lie side by side: a few k at a time, so
// that reads run along the rows while writes stay within few pages.
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
  // The width is known when compiling for every set but the scalable ones, which are not built.
  PackSideBySide<2 * static_cast<int>(hn::MaxLanes(D()))>(from, k_stride, columns, k, into);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Rows);
HWY_EXPORT(Columns);
HWY_EXPORT(Gemm);
HWY_EXPORT(Transpose);
HWY_EXPORT(PackRowsSideBySide);
HWY_EXPORT(PackColumnsSideBySide);

MicroTile micro_tile() { return {HWY_DYNAMIC_DISPATCH(Rows)(), HWY_DYNAMIC_DISPATCH(Columns)()}; }

void micro_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, float* c,
                std::int64_t c_stride, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, b, c, c_stride, accumulate);
}

void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, from_stride, rows, columns, into, into_stride);
}

AView plain_a(const float* data, std::int64_t row, std::int64_t col) {
  return {data, row, col, row * micro_tile().rows};
}
BView plain_b(const float* data, std::int64_t row) { return {data, row, micro_tile().columns}; }

namespace {

// Rows an odd number of cache lines apart never crowd into one set of a cache.
std::int64_t copied_row(std::int64_t k) { return (div_up(k, 16) | 1) * 16; }

// Groups of `width` rows, each stored with its k-th elements side by side.
void pack_by_column(const float* data, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t k,
                    std::int64_t width, float* into) {
  for (std::int64_t i = 0; i < rows; i += width, into += width * k) {
    const float* from = data + i * row;
    const std::int64_t count = std::min(width, rows - i);
    if (count < width) std::fill_n(into, width * k, 0.0f);
    if (col == 1)
      transpose(from, row, count, k, into, width);
    else
      for (std::int64_t step = 0; step < k; ++step)
        for (std::int64_t r = 0; r < count; ++r) into[step * width + r] = from[r * row + step * col];
  }
}

}  // namespace

std::int64_t packed_a_floats(std::int64_t m, std::int64_t k) {
  return std::max(m * copied_row(k), round_up(m, micro_tile().rows) * k);
}

AView pack_a(const float* data, std::int64_t row, std::int64_t col, std::int64_t m, std::int64_t k,
             float* into) {
  const std::int64_t rows = micro_tile().rows;
  if (row == 1) {
    HWY_DYNAMIC_DISPATCH(PackRowsSideBySide)(data, col, m, k, into);
    return {into, 1, rows, rows * k};
  }
  const std::int64_t apart = copied_row(k);
  for (std::int64_t i = 0; i < m; ++i) {
    if (col == 1)
      std::memcpy(into + i * apart, data + i * row, static_cast<std::size_t>(k) * sizeof(float));
    else
      for (std::int64_t step = 0; step < k; ++step) into[i * apart + step] = data[i * row + step * col];
  }
  return plain_a(into, apart, 1);
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
