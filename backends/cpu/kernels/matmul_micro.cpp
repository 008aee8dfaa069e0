#include "backends/cpu/kernels/matmul_micro.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backends/cpu/kernels/matmul_work.h"
#include "backends/cpu/kernels/matrix_tiles.h"

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

#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
#define MESHLOOM_BF16_PAIRS 1
#else
#define MESHLOOM_BF16_PAIRS 0
#endif

template <Factors FACTORS>
HWY_INLINE hn::Vec<D> Product([[maybe_unused]] D d, hn::Vec<D> a, hn::Vec<D> b,
                              [[maybe_unused]] hn::Vec<D> sum, bool first) {
#if MESHLOOM_BF16_PAIRS
  if constexpr (FACTORS == Factors::bf16_pairs) {
    if (first) sum = hn::Zero(d);
    // Written out: the set of instructions that this is compiled for does not have it.
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
#endif
  // Sums that begin as zeros cost a product of 64 steps 4 % on Zen 3: the first step only multiplies.
  return first ? hn::Mul(a, b) : hn::MulAdd(a, b, sum);
}

template <Factors FACTORS, int ROWS, Aside ASIDE>
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
    // With many rows every third has a pointer of its own: one for all of them takes more registers for
    // distances than there are.
    constexpr int kShare = kRows > 6 ? 3 : kRows, kPointers = (ROWS + kShare - 1) / kShare;
    const float* shared[kPointers];
    for (int i = 0; i < kPointers; ++i) {
      shared[i] = a + kShare * i * a_row;
      if constexpr (kPointers > 1)
        __asm__("" : "+r"(shared[i]));  // or the compiler makes distances of them again
    }
    hn::Vec<D> left[ROWS], right[ROWS];
    const auto step_of = [&](auto first) HWY_ATTR {
      const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
      if constexpr (ASIDE == Aside::raw || ASIDE == Aside::pack)
        for (std::int64_t j = 0; j < 2 * lanes; j += kLine) hwy::Prefetch(b + 2 * lanes + j);
      if constexpr (ASIDE == Aside::pack) {
        hn::Store(b0, d, packed);
        hn::Store(b1, d, packed + lanes);
        packed += 2 * lanes;
      }
#pragma GCC unroll 12
      for (int i = 0; i < ROWS; ++i) {
        const auto factor = hn::Set(d, shared[i / kShare][i % kShare * a_row]);
        left[i] = Product<FACTORS>(d, factor, b0, left[i], first);
        right[i] = Product<FACTORS>(d, factor, b1, right[i], first);
      }
      for (int i = 0; i < kPointers; ++i) shared[i] += a_col;
      b += b_row;
    };
    const auto ask_ahead = [&] {
      if constexpr (ASIDE == Aside::ahead)
        for (int i = 0; i < ROWS; ++i) hwy::Prefetch(shared[0] + (ROWS + i) * a_row);
    };
    // C is needed at the end: long enough ahead to come from anywhere. Many lines at once would hold up what
    // the loop reads.
    constexpr bool kSpread = kRows > 6;
    const bool worth = k >= (accumulate ? 4 : 8) * kLine;
    const std::int64_t rows_at_once = !worth ? 0 : kSpread ? div_up(ROWS * kLine, k) : ROWS;
    std::int64_t asked = 0;
    const auto ask_for_c = [&] {
      for (const std::int64_t until = std::min<std::int64_t>(ROWS, asked + rows_at_once); asked < until;
           ++asked)
        for (std::int64_t j = 0; j < 2 * lanes; j += kLine) hwy::Prefetch(c + asked * c_stride + j);
    };
    ask_ahead();
    step_of(std::true_type());
    for (std::int64_t step = 1; step < k;) {
      ask_for_c();
      const std::int64_t stop = ASIDE == Aside::ahead || kSpread ? std::min(k, round_up(step + 1, kLine)) : k;
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

template <Factors FACTORS, Aside ASIDE>
MicroFunction MicroFor(std::int64_t rows) {
  static constexpr auto kTable = []<int... ROW>(std::integer_sequence<int, ROW...>) {
    return std::array<MicroFunction, kRows>{Micro<FACTORS, ROW + 1, ASIDE>...};
  }
  (std::make_integer_sequence<int, kRows>());
  return kTable[static_cast<std::size_t>(rows - 1)];
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

// `raw` is null, or B where it lies, which is then packed into b (whose rows and panels are dense); of f32
// only.
template <Factors FACTORS>
void GemmOf(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, const float* raw,
            std::int64_t raw_row, float* c, std::int64_t c_stride, bool accumulate) {
  constexpr bool kRaw = FACTORS == Factors::f32;
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
    MicroFor<FACTORS, Aside::none>(rows)(kOne, k, strip(i), a.row, a.col, panel(j), b.row, sums, columns,
                                         accumulate, nullptr);
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * columns, width, to + r * c_stride);
  };
  for (std::int64_t j = 0; j < n; j += columns) {
    const bool full = j + columns <= n;
    if constexpr (kRaw)
      if (raw != nullptr && !full)
        PackColumnsSideBySide(raw + j, raw_row, n - j, k, const_cast<float*>(panel(j)));
    for (std::int64_t i = 0, rows = 0; i < m; i += rows) {
      rows = StripRows(m - i, even);
      if (!full) {
        edge(i, rows, j);
        continue;
      }
      if constexpr (kRaw)
        if (raw != nullptr && i == 0) {
          if (rows == m && b.panel == 0)
            run(MicroFor<FACTORS, Aside::raw>(rows), kOne, i, j, raw + j, raw_row, nullptr);
          else
            run(MicroFor<FACTORS, Aside::pack>(rows), kOne, i, j, raw + j, raw_row,
                const_cast<float*>(panel(j)));
          continue;
        }
      const std::int64_t count = EqualStrips(m - i, rows, even);
      const Strips strips{count, even ? rows * a.row : a.strip, rows * c_stride};
      run(j == 0 && a.col == 1 ? MicroFor<FACTORS, Aside::ahead>(rows) : MicroFor<FACTORS, Aside::none>(rows),
          strips, i, j, panel(j), b.row, nullptr);
      i += (count - 1) * rows;
    }
  }
}

void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, const float* raw,
          std::int64_t raw_row, float* c, std::int64_t c_stride, bool accumulate,
          [[maybe_unused]] Factors factors) {
#if MESHLOOM_BF16_PAIRS
  if (factors == Factors::bf16_pairs) {
    GemmOf<Factors::bf16_pairs>(m, n, k, a, b, nullptr, 0, c, c_stride, accumulate);
    return;
  }
#endif
  GemmOf<Factors::f32>(m, n, k, a, b, raw, raw_row, c, c_stride, accumulate);
}

bool HasPairs() { return MESHLOOM_BF16_PAIRS != 0; }

double SpinPairs([[maybe_unused]] std::int64_t rounds) {
#if MESHLOOM_BF16_PAIRS
  const D d;
  constexpr int kChains = 16;  // latency 6 times throughput 2 needs twelve
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  hn::Vec<D> sums[kChains];
  for (auto& sum : sums) sum = x;
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = Product<Factors::bf16_pairs>(d, x, y, sums[i], false);
  auto all = sums[0];
  for (int i = 1; i < kChains; ++i) all = hn::Add(all, sums[i]);
  volatile float sink = hn::GetLane(all);  // keeps the loop
  (void)sink;
  return 4.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
#else
  return 0;
#endif
}

// A row of words from two rows of bf16 numbers, of which the second may be null.
HWY_INLINE void PairRow(const std::uint16_t* first, const std::uint16_t* second, std::int64_t columns,
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

void PairRows(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
              float* into) {
  for (std::int64_t row = 0; row < k; row += 2, into += columns)
    PairRow(from + row * stride, row + 1 < k ? from + (row + 1) * stride : nullptr, columns, into);
}

// A few rows at a time, so that reads run along the rows while writes stay within few pages.
void PackPairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t n, float* into) {
  constexpr std::int64_t kStep = 16;
  const std::int64_t columns = Columns(), words = div_up(k, 2);
  for (std::int64_t k0 = 0; k0 < k; k0 += kStep)
    for (std::int64_t j = 0; j < n; j += columns) {
      const std::int64_t width = std::min(columns, n - j);
      float* to = into + j * words + k0 / 2 * columns;
      for (std::int64_t row = k0; row < std::min(k, k0 + kStep); row += 2, to += columns) {
        const std::uint16_t* first = from + row * stride + j;
        PairRow(first, row + 1 < k ? first + stride : nullptr, width, to);
        std::fill(to + width, to + columns, 0.0f);
      }
    }
}
#undef MESHLOOM_BF16_PAIRS

void TransposeByElement(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                        float* into, std::int64_t into_stride) {
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i) into[j * into_stride + i] = from[i * from_stride + j];
}

#if HWY_TARGET != HWY_SCALAR
// Four columns from four vectors: each holds four columns of its row and, behind them, of the rows four,
// eight, twelve below.
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

// As many rows at a time as vectors of D hold, blocks of four columns through registers; the rest by element.
// Returns the first row that is left.
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
  // Four of a row and, behind them, of the row four below.
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

// Rows of `from` as columns of `into`, `width` floats wide: runs of k long enough for the processor to fetch ahead, and so
// short that what is written stays near until its lines are full.
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

// Block by block through the first-level cache; a row gets a line of it at a time.
void TurnPairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
               float* into, std::int64_t apart) {
  constexpr std::int64_t kWords = 16, kColumns = 64;
  HWY_ALIGN float block[kWords * kColumns];
  for (std::int64_t j = 0; j < columns; j += kColumns) {
    const std::int64_t width = std::min(kColumns, columns - j);
    for (std::int64_t k0 = 0; k0 < k; k0 += 2 * kWords) {
      const std::int64_t steps = std::min(2 * kWords, k - k0);
      PairRows(from + k0 * stride + j, stride, steps, width, block);
      Transpose(block, width, div_up(steps, 2), width, into + j * apart + k0 / 2, apart);
    }
  }
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
HWY_EXPORT(HasPairs);
HWY_EXPORT(SpinPairs);
HWY_EXPORT(PairRows);
HWY_EXPORT(PackPairs);
HWY_EXPORT(TurnPairs);
HWY_EXPORT(Transpose);
HWY_EXPORT(PackRowsSideBySide);
HWY_EXPORT(PackColumnsSideBySide);
HWY_EXPORT(PackAlongK);

MicroTile micro_tile() { return {HWY_DYNAMIC_DISPATCH(Rows)(), HWY_DYNAMIC_DISPATCH(Columns)()}; }

bool multiplies_bf16_pairs() {
#if defined(__x86_64__)
  // Intel's take vdpbf16ps at a quarter of the rate of multiply-adds: no faster than numbers made f32
  // (measured: 2.3 times slower).
  static const bool can =
      __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel") && HWY_DYNAMIC_DISPATCH(HasPairs)();
  return can || bf16_pairs_in_tiles();
#else
  return false;
#endif
}

bool bf16_pairs_in_tiles() {
  static const bool can = has_matrix_tiles(TileProduct::bf16_pairs) && micro_tile().columns == kTileColumns;
  return can;
}

double spin_bf16_pairs(std::int64_t rounds) {
  return bf16_pairs_in_tiles() ? spin_tiles(rounds) : HWY_DYNAMIC_DISPATCH(SpinPairs)(rounds);
}

void micro_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, float* c,
                std::int64_t c_stride, bool accumulate, Factors factors) {
  if (factors == Factors::bf16_pairs && bf16_pairs_in_tiles()) {
    tile_gemm(TileProduct::bf16_pairs, m, n, k, {a.data, a.row, b.data, b.row, b.panel, c, c_stride},
              accumulate);
    return;
  }
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, b, nullptr, 0, c, c_stride, accumulate, factors);
}

void pair_rows(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
               float* into) {
  HWY_DYNAMIC_DISPATCH(PairRows)(from, stride, k, columns, into);
}

BView pack_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t n,
                 float* into) {
  const std::int64_t columns = micro_tile().columns;
  HWY_DYNAMIC_DISPATCH(PackPairs)(from, stride, k, n, into);
  return {into, columns, columns * div_up(k, 2)};
}

BView micro_gemm_packing(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const float* b,
                         std::int64_t b_row, bool keep, float* into, float* c, std::int64_t c_stride,
                         bool accumulate) {
  const std::int64_t columns = micro_tile().columns;
  const BView packed{into, columns, keep ? columns * k : 0};
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, packed, b, b_row, c, c_stride, accumulate, Factors::f32);
  return packed;
}

void turn_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t k, std::int64_t columns,
                float* into, std::int64_t apart) {
  HWY_DYNAMIC_DISPATCH(TurnPairs)(from, stride, k, columns, into, apart);
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
