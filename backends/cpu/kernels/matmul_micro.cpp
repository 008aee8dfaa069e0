#include "backends/cpu/kernels/matmul_micro.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/cpu/kernels/matmul_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/matmul_micro.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/cache_control.h"
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

// What one call of the inner loop may do on the side.
enum class Aside : std::uint8_t {
  none,
  ahead,  // ask for the rows of A that come next
  raw,    // read B where it lies and ask for the panel to its right
  pack,   // the same, and leave a packed copy
};

// Strips of A, one below the other, and the tiles of C they give: from one to the next as many floats.
struct Strips {
  std::int64_t count, a, c;
};

template <int ROWS, Aside ASIDE>
HWY_NOINLINE void Micro(const Strips& strips, std::int64_t k, const float* HWY_RESTRICT first_a,
                        std::int64_t a_row, std::int64_t a_col, const float* HWY_RESTRICT first_b,
                        std::int64_t b_row, float* HWY_RESTRICT first_c, std::int64_t c_stride,
                        bool accumulate, float* HWY_RESTRICT packed) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kLine = 16;  // floats of a cache line
  for (std::int64_t strip = 0; strip < strips.count; ++strip) {
    const float *a = first_a + strip * strips.a, *b = first_b;
    float* const c = first_c + strip * strips.c;
    // The sums are needed at the end: long enough ahead to come from anywhere.
    if (accumulate ? k >= 4 * kLine : k >= 8 * kLine)
      for (int i = 0; i < ROWS; ++i) hwy::Prefetch(c + i * c_stride);
    hn::Vec<D> left[ROWS], right[ROWS];
    const auto step_of = [&](auto first) HWY_ATTR {
      const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
      if constexpr (ASIDE == Aside::raw || ASIDE == Aside::pack) hwy::Prefetch(b + 2 * lanes);
      if constexpr (ASIDE == Aside::pack) {
        hn::Store(b0, d, packed);
        hn::Store(b1, d, packed + lanes);
        packed += 2 * lanes;
      }
#pragma GCC unroll 12
      for (int i = 0; i < ROWS; ++i) {
        const auto factor = hn::Set(d, a[i * a_row]);
        if constexpr (first) {
          left[i] = hn::Mul(factor, b0);
          right[i] = hn::Mul(factor, b1);
        } else {
          left[i] = hn::MulAdd(factor, b0, left[i]);
          right[i] = hn::MulAdd(factor, b1, right[i]);
        }
      }
      a += a_col;
      b += b_row;
    };
    const auto ask_ahead = [&] {
      if constexpr (ASIDE == Aside::ahead)
        for (int i = 0; i < ROWS; ++i) hwy::Prefetch(a + (ROWS + i) * a_row);
    };
    // Sums that begin as zeros cost a product of 64 steps 4 % on Zen 3: the first step only multiplies.
    ask_ahead();
    step_of(std::true_type());
    for (std::int64_t step = 1; step < k;) {
      const std::int64_t stop = ASIDE == Aside::ahead ? std::min(k, round_up(step + 1, kLine)) : k;
      for (; step < stop; ++step) step_of(std::false_type());
      if (step < k) ask_ahead();
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
}

using MicroFunction = void (*)(const Strips&, std::int64_t, const float*, std::int64_t, std::int64_t,
                               const float*, std::int64_t, float*, std::int64_t, bool, float*);

template <Aside ASIDE>
MicroFunction MicroFor(std::int64_t rows) {
  static constexpr MicroFunction kTable[] = {
    Micro<1, ASIDE>,
    Micro<2, ASIDE>,
    Micro<3, ASIDE>,
    Micro<4, ASIDE>,
    Micro<5, ASIDE>,
    Micro<6, ASIDE>,
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
    Micro<7, ASIDE>,
    Micro<8, ASIDE>,
    Micro<9, ASIDE>,
    Micro<10, ASIDE>,
    Micro<11, ASIDE>,
    Micro<12, ASIDE>,
#endif
  };
  return kTable[rows - 1];
}

// Rows of the next strip when `left` remain. Few rows hide the latency of multiply-adds badly, so rows that
// lie evenly end with two strips of about the same height.
std::int64_t StripRows(std::int64_t left, bool even) {
  if (even && left > kRows && left < kRows + kRows / 2) return (left + 1) / 2;
  return std::min<std::int64_t>(kRows, left);
}

// How many strips of `rows` rows follow each other when `left` rows remain.
std::int64_t EqualStrips(std::int64_t left, std::int64_t rows, bool even) {
  if (rows < kRows) return 1;
  const std::int64_t rest = left % kRows;
  return left / kRows - (even && rest > 0 && rest < kRows / 2 ? 1 : 0);
}

// `raw` is null, or B where it lies, which is then packed into b (whose rows and panels are dense).
void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, const float* raw,
          std::int64_t raw_row, float* c, std::int64_t c_stride, bool accumulate) {
  const std::int64_t columns = Columns();
  const bool even = a.strip == kRows * a.row;
  const auto panel = [&](std::int64_t j) { return b.data + j / columns * b.panel; };
  const auto strip = [&](std::int64_t i) { return a.data + (even ? i * a.row : i / kRows * a.strip); };
  const auto run = [&](MicroFunction micro, const Strips& strips, std::int64_t i, std::int64_t j,
                       const float* right, std::int64_t right_row, float* packed) {
    micro(strips, k, strip(i), a.row, a.col, right, right_row, c + i * c_stride + j, c_stride, accumulate,
          packed);
  };
  constexpr Strips kOne{1, 0, 0};
  const auto edge = [&](std::int64_t i, std::int64_t rows, std::int64_t j) {
    const std::int64_t width = n - j;
    HWY_ALIGN float sums[kRows * 2 * HWY_MAX_BYTES / sizeof(float)];
    float* to = c + i * c_stride + j;
    if (accumulate)
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(to + r * c_stride, width, sums + r * columns);
    MicroFor<Aside::none>(rows)(kOne, k, strip(i), a.row, a.col, panel(j), b.row, sums, columns, accumulate,
                                nullptr);
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * columns, width, to + r * c_stride);
  };
  for (std::int64_t j = 0; j < n; j += columns) {
    const bool full = j + columns <= n;
    if (raw != nullptr && !full)
      PackColumnsSideBySide(raw + j, raw_row, n - j, k, const_cast<float*>(panel(j)));
    for (std::int64_t i = 0, rows = 0; i < m; i += rows) {
      rows = StripRows(m - i, even);
      if (!full) {
        edge(i, rows, j);
        continue;
      }
      if (raw != nullptr && i == 0) {
        if (rows == m && b.panel == 0)
          run(MicroFor<Aside::raw>(rows), kOne, i, j, raw + j, raw_row, nullptr);
        else
          run(MicroFor<Aside::pack>(rows), kOne, i, j, raw + j, raw_row, const_cast<float*>(panel(j)));
        continue;
      }
      const std::int64_t count = EqualStrips(m - i, rows, even);
      const Strips strips{count, even ? rows * a.row : a.strip, rows * c_stride};
      run(j == 0 && a.col == 1 ? MicroFor<Aside::ahead>(rows) : MicroFor<Aside::none>(rows), strips, i, j,
          panel(j), b.row, nullptr);
      i += (count - 1) * rows;
    }
  }
}

void TransposeByElement(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                        float* into, std::int64_t into_stride) {
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i) into[j * into_stride + i] = from[i * from_stride + j];
}

#if HWY_TARGET != HWY_SCALAR
// Four columns from four vectors: each holds four columns of its row and, behind them, of the row four below.
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

// Blocks of four columns through registers, eight rows at a time where vectors hold as many; the rest by
// element.
void Transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d4;
#if HWY_MAX_BYTES >= 32
  const hn::CappedTag<float, 8> d8;
  for (; i + 8 <= rows; i += 8) {
    const float* at = from + i * from_stride;
    const auto pair = [&](std::int64_t r, std::int64_t j) {
      return hn::Combine(d8, hn::LoadU(d4, at + (r + 4) * from_stride + j),
                         hn::LoadU(d4, at + r * from_stride + j));
    };
    const std::int64_t whole = columns / 4 * 4;
    for (std::int64_t j = 0; j < whole; j += 4)
      TransposeFours(d8, pair(0, j), pair(1, j), pair(2, j), pair(3, j), into + j * into_stride + i,
                     into_stride);
    TransposeByElement(at + whole, from_stride, 8, columns - whole, into + whole * into_stride + i,
                       into_stride);
  }
#endif
  for (; i + 4 <= rows; i += 4) {
    const float* at = from + i * from_stride;
    const auto row = [&](std::int64_t r, std::int64_t j) { return hn::LoadU(d4, at + r * from_stride + j); };
    const std::int64_t whole = columns / 4 * 4;
    for (std::int64_t j = 0; j < whole; j += 4)
      TransposeFours(d4, row(0, j), row(1, j), row(2, j), row(3, j), into + j * into_stride + i, into_stride);
    TransposeByElement(at + whole, from_stride, 4, columns - whole, into + whole * into_stride + i,
                       into_stride);
  }
#endif
  TransposeByElement(from + i * from_stride, from_stride, rows - i, columns, into + i, into_stride);
}

// Rows of `from` as columns of `into`, `width` floats wide: runs of k long enough for the processor to fetch ahead, and so
// short that what is written stays near until its lines are full.
void PackAlongK(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t k, std::int64_t width,
                float* into) {
  constexpr std::int64_t kRun = 64;
  for (std::int64_t step = 0; step < k; step += kRun)
    Transpose(from + step, stride, rows, std::min(kRun, k - step), into + step * width, width);
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
HWY_EXPORT(PackAlongK);

MicroTile micro_tile() { return {HWY_DYNAMIC_DISPATCH(Rows)(), HWY_DYNAMIC_DISPATCH(Columns)()}; }

void micro_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, float* c,
                std::int64_t c_stride, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, b, nullptr, 0, c, c_stride, accumulate);
}

BView micro_gemm_packing(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const float* b,
                         std::int64_t b_row, bool keep, float* into, float* c, std::int64_t c_stride,
                         bool accumulate) {
  const std::int64_t columns = micro_tile().columns;
  const BView packed{into, columns, keep ? columns * k : 0};
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, packed, b, b_row, c, c_stride, accumulate);
  return packed;
}

void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* into, std::int64_t into_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, from_stride, rows, columns, into, into_stride);
}

AView plain_a(const float* data, std::int64_t row, std::int64_t col) {
  return {data, row, col, row * micro_tile().rows};
}
std::int64_t spread_row(std::int64_t floats) { return (div_up(floats, 16) | 1) * 16; }

BView plain_b(const float* data, std::int64_t row) { return {data, row, micro_tile().columns}; }

namespace {

// Groups of `width` rows, each stored with its k-th elements side by side.
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
  return std::max(m * spread_row(k), round_up(m, micro_tile().rows) * k);
}

AView pack_a(const float* data, std::int64_t row, std::int64_t col, std::int64_t m, std::int64_t k,
             float* into) {
  const std::int64_t rows = micro_tile().rows;
  if (row == 1) {
    HWY_DYNAMIC_DISPATCH(PackRowsSideBySide)(data, col, m, k, into);
    return {into, 1, rows, rows * k};
  }
  const std::int64_t apart = spread_row(k);
  for (std::int64_t i = 0; i < m; ++i) {
    if (col == 1) {
      for (std::int64_t step = 0; step < k; step += 16) hwy::Prefetch(data + (i + 2) * row + step);
      std::memcpy(into + i * apart, data + i * row, static_cast<std::size_t>(k) * sizeof(float));
    } else
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
