#include "backends/cpu/gemm/matmul_micro.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/matmul_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/matmul_micro.cpp"
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

std::int64_t Rows() { return kRows; }
std::int64_t Columns() { return 2 * static_cast<std::int64_t>(hn::Lanes(D())); }

// What one call of the inner loop may do on the side.
enum class Aside : std::uint8_t {
  none,
  ahead,  // ask for the rows of A that come next
  raw,    // read B where it lies and ask for the panel to its right
  pack,   // the same, and leave a packed copy
  fetch,  // ask for a share of what is packed next, of a B that lies elsewhere
};

// Strips of A, one below the other, and the tiles of C they give: from one to the next as many floats.
struct Strips {
  std::int64_t count, a, c;
};

// How far it is from a panel of B to the one that goes through the registers with it; from a B that is being
// packed to what is asked for; and the `rows` of B that Aside::fetch asks for.
struct Panels {
  std::int64_t apart = 0, ahead = 0;
  const float* next = nullptr;
  std::int64_t next_row = 0, rows = 0;
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

// Not a loop, nor `of` a function that is called: the compiler would see too late that every sum has a
// register.
template <int... ROW, typename Of>
HWY_INLINE void ForEach(std::integer_sequence<int, ROW...>, Of of) {
  (of(std::integral_constant<int, ROW>()), ...);
}
#define MESHLOOM_INLINE_ATTR HWY_ATTR __attribute__((always_inline))

template <Factors FACTORS, int PANELS, int ROWS, Aside ASIDE>
HWY_NOINLINE void Micro(const Strips& strips, std::int64_t k, const float* HWY_RESTRICT first_a,
                        std::int64_t a_row, std::int64_t a_col, const float* HWY_RESTRICT first_b,
                        std::int64_t b_row, const Panels& panels, float* HWY_RESTRICT first_c,
                        std::int64_t c_stride, bool accumulate, float* HWY_RESTRICT packed) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kLine = 16;  // floats of a cache line
  constexpr std::make_integer_sequence<int, ROWS> kEveryRow;
  const std::int64_t apart = panels.apart, ahead = panels.ahead;
  std::int64_t fetched = 0;
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
    constexpr int kFurther = PANELS > 1 ? ROWS : 1;
    hn::Vec<D> sums0[ROWS], sums1[ROWS], sums2[kFurther], sums3[kFurther];
    const auto step_of = [&](auto first) MESHLOOM_INLINE_ATTR {
      const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
      if constexpr (ASIDE == Aside::raw || ASIDE == Aside::pack)
        for (std::int64_t j = 0; j < 2 * lanes; j += kLine) hwy::Prefetch(b + ahead + j);
      if constexpr (ASIDE == Aside::pack) {
        hn::Store(b0, d, packed);
        hn::Store(b1, d, packed + lanes);
        packed += 2 * lanes;
      }
      hn::Vec<D> b2 = b0, b3 = b1;
      if constexpr (PANELS > 1) {
        b2 = hn::LoadU(d, b + apart);
        b3 = hn::LoadU(d, b + apart + lanes);
      }
      ForEach(kEveryRow, [&](auto i) MESHLOOM_INLINE_ATTR {
        const auto factor = hn::Set(d, shared[i / kShare][i % kShare * a_row]);
        sums0[i] = Product<FACTORS>(d, factor, b0, sums0[i], first);
        sums1[i] = Product<FACTORS>(d, factor, b1, sums1[i], first);
        if constexpr (PANELS > 1) {
          sums2[i] = Product<FACTORS>(d, factor, b2, sums2[i], first);
          sums3[i] = Product<FACTORS>(d, factor, b3, sums3[i], first);
        }
      });
      for (int i = 0; i < kPointers; ++i) {
        shared[i] += a_col;
        if constexpr (PANELS > 1) __asm__("" : "+r"(shared[i]));  // or it adds in a vector, which it stores
      }
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
    const std::int64_t rows_at_once = !worth ? 0 : kSpread ? ceil_div(ROWS * kLine, k) : ROWS;
    std::int64_t asked = 0;
    const auto ask_for_c = [&] {
      for (const std::int64_t until = std::min<std::int64_t>(ROWS, asked + rows_at_once); asked < until;
           ++asked)
        for (std::int64_t j = 0; j < 2 * PANELS * lanes; j += kLine) hwy::Prefetch(c + asked * c_stride + j);
    };
    // Into the second-level cache, for the first is full of what is multiplied.
    const auto fetch = [&](std::int64_t step) {
      if constexpr (ASIDE == Aside::fetch)
        for (const std::int64_t until = panels.rows * (strip * k + step) / (strips.count * k);
             fetched < until; ++fetched)
          for (std::int64_t j = 0; j < 2 * PANELS * lanes; j += kLine)
            __builtin_prefetch(panels.next + fetched * panels.next_row + j, 0, 2);
    };
    ask_ahead();
    step_of(std::true_type());
    for (std::int64_t step = 1; step < k;) {
      ask_for_c();
      constexpr bool kInStretches = ASIDE == Aside::ahead || ASIDE == Aside::fetch || kSpread;
      const std::int64_t stop = kInStretches ? std::min(k, round_up(step + 1, kLine)) : k;
      fetch(stop);
      for (; step < stop; ++step) step_of(std::false_type());
      if (step < k) ask_ahead();
    }
    const auto put = [&](hn::Vec<D> sum, float* to) MESHLOOM_INLINE_ATTR {
      hn::StoreU(accumulate ? hn::Add(sum, hn::LoadU(d, to)) : sum, d, to);
    };
    ForEach(kEveryRow, [&](auto i) MESHLOOM_INLINE_ATTR {
      float* row = c + i * c_stride;
      put(sums0[i], row);
      put(sums1[i], row + lanes);
      if constexpr (PANELS > 1) {
        put(sums2[i], row + 2 * lanes);
        put(sums3[i], row + 3 * lanes);
      }
    });
  }
}

using MicroFunction = void (*)(const Strips&, std::int64_t, const float*, std::int64_t, std::int64_t,
                               const float*, std::int64_t, const Panels&, float*, std::int64_t, bool, float*);

template <Factors FACTORS, int PANELS, Aside ASIDE>
MicroFunction MicroFor(std::int64_t rows) {
  static constexpr auto kTable = []<int... ROW>(std::integer_sequence<int, ROW...>) {
    return std::array<MicroFunction, kRows / PANELS>{Micro<FACTORS, PANELS, ROW + 1, ASIDE>...};
  }
  (std::make_integer_sequence<int, kRows / PANELS>());
  return kTable[static_cast<std::size_t>(rows - 1)];
}

// Rows of the next strip when `left` remain, of `height` rows at most. Few rows hide the latency of
// multiply-adds badly, so rows that lie evenly end with two strips of about the same height.
std::int64_t StripRows(std::int64_t left, bool even, std::int64_t height = kRows) {
  if (even && left > height && left < height + height / 2) return (left + 1) / 2;
  return std::min(height, left);
}

// How many strips of `rows` rows follow each other when `left` rows remain.
std::int64_t EqualStrips(std::int64_t left, std::int64_t rows, bool even, std::int64_t height = kRows) {
  if (rows < height) return 1;
  const std::int64_t rest = left % height;
  return left / height - (even && rest > 0 && rest < height / 2 ? 1 : 0);
}

#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
// 6 rows by two panels in place of 12 by one take a third fewer loads: 7 to 11 % on Intel, measured where
// others share the cores. AMD's were not tried.
bool TakesPairs(std::int64_t n) {
  static const bool takes = __builtin_cpu_is("intel");
  return takes && n >= 2 * Columns();
}
#else
bool TakesPairs(std::int64_t) { return false; }
#endif

// `raw` is null, or B where it lies, which is then packed into b (whose rows and panels are dense); of f32
// only.
template <Factors FACTORS>
void GemmOf(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, const float* raw,
            std::int64_t raw_row, float* c, std::int64_t c_stride, bool accumulate) {
  constexpr bool kF32 = FACTORS == Factors::f32, kPairs = kF32 && kRows > 6;
  const std::int64_t columns = Columns();
  const bool even = a.strip == kRows * a.row;
  const bool pairs = kPairs && TakesPairs(n);
  const auto panel = [&](std::int64_t j) {
    const bool second = pairs && b.panel == 0 && j / columns % 2 == 1;
    return b.data + (second ? k * columns : j / columns * b.panel);
  };
  const auto strip = [&](std::int64_t i) {
    return a.data + (even ? i * a.row : i / kRows * a.strip + i % kRows * a.row);
  };
  const auto run = [&](MicroFunction micro, const Strips& strips, std::int64_t i, std::int64_t j,
                       const float* right, std::int64_t right_row, const Panels& panels, float* packed) {
    micro(strips, k, strip(i), a.row, a.col, right, right_row, panels, c + i * c_stride + j, c_stride,
          accumulate, packed);
  };
  constexpr Strips kOne{1, 0, 0};
  const auto edge = [&](std::int64_t j) {
    const std::int64_t width = n - j;
    HWY_ALIGN float sums[kRows * 2 * HWY_MAX_BYTES / sizeof(float)];
    for (std::int64_t i = 0, rows = 0; i < m; i += rows) {
      rows = StripRows(m - i, even);
      float* to = c + i * c_stride + j;
      if (accumulate)
        for (std::int64_t r = 0; r < rows; ++r) std::copy_n(to + r * c_stride, width, sums + r * columns);
      MicroFor<FACTORS, 1, Aside::none>(rows)(kOne, k, strip(i), a.row, a.col, panel(j), b.row, {}, sums,
                                              columns, accumulate, nullptr);
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * columns, width, to + r * c_stride);
    }
  };
  // The first strip, which packs the panel: so many rows.
  const auto first_strip = [&]([[maybe_unused]] std::int64_t j) {
    std::int64_t rows = 0;
    if constexpr (kF32)
      if (raw != nullptr) {
        constexpr std::int64_t kRowsAhead = 16;
        rows = StripRows(m, even);
        const bool only = rows == m && b.panel == 0;
        const Panels panels{.ahead = pairs && !only ? kRowsAhead * raw_row : columns};
        run(only ? MicroFor<FACTORS, 1, Aside::raw>(rows) : MicroFor<FACTORS, 1, Aside::pack>(rows), kOne, 0,
            j, raw + j, raw_row, panels, only ? nullptr : const_cast<float*>(panel(j)));
      }
    return rows;
  };
  // The rows from `begin` on, by `at_once` panels that lie packed.
  const auto rest = [&](auto at_once, std::int64_t j, std::int64_t begin) {
    constexpr std::int64_t kHeight = kRows / at_once;
    constexpr bool kOnePanel = at_once == 1;
    const std::int64_t width = at_once * columns;
    const bool fetches = !kOnePanel && raw != nullptr && j + 2 * width <= n;
    const auto share = [&](std::int64_t until) { return k * (until - begin) / (m - begin); };
    for (std::int64_t i = begin, count = 0, rows = 0; i < m; i += count * rows) {
      // A's strips that do not lie evenly are of kRows: lower ones are parts of them.
      const bool whole = even || kOnePanel;
      rows = StripRows(m - i, even, kHeight);
      count = EqualStrips(whole ? m - i : std::min(m - i, kRows - i % kRows), rows, even, kHeight);
      Panels panels;
      MicroFunction micro = j == 0 && a.col == 1 ? MicroFor<FACTORS, at_once, Aside::ahead>(rows)
                                                 : MicroFor<FACTORS, at_once, Aside::none>(rows);
      if constexpr (!kOnePanel) {
        panels.apart = panel(j + columns) - panel(j);
        if (fetches) {
          panels.next = raw + j + width + share(i) * raw_row;
          panels.next_row = raw_row;
          panels.rows = share(i + count * rows) - share(i);
          micro = MicroFor<FACTORS, at_once, Aside::fetch>(rows);
        }
      }
      run(micro, {count, even || !kOnePanel ? rows * a.row : a.strip, rows * c_stride}, i, j, panel(j), b.row,
          panels, nullptr);
    }
  };
  for (std::int64_t j = 0; j < n; j += columns) {
    if (j + columns > n) {
      if constexpr (kF32)
        if (raw != nullptr) pack_b(raw + j, raw_row, 1, k, n - j, const_cast<float*>(panel(j)));
      edge(j);
      continue;
    }
    const std::int64_t begin = first_strip(j);
    if constexpr (kPairs)
      if (pairs && j + 2 * columns <= n) {
        first_strip(j + columns);
        rest(std::integral_constant<int, 2>(), j, begin);
        j += columns;
        continue;
      }
    rest(std::integral_constant<int, 1>(), j, begin);
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

#undef MESHLOOM_INLINE_ATTR
#undef MESHLOOM_BF16_PAIRS

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Rows);
HWY_EXPORT(Columns);
HWY_EXPORT(TakesPairs);
HWY_EXPORT(Gemm);
HWY_EXPORT(HasPairs);
HWY_EXPORT(SpinPairs);

MicroTile micro_tile() { return {HWY_DYNAMIC_DISPATCH(Rows)(), HWY_DYNAMIC_DISPATCH(Columns)()}; }

bool takes_panels_in_pairs(std::int64_t columns) { return HWY_DYNAMIC_DISPATCH(TakesPairs)(columns); }

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

BView micro_gemm_packing(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const float* b,
                         std::int64_t b_row, bool keep, float* into, float* c, std::int64_t c_stride,
                         bool accumulate) {
  const std::int64_t columns = micro_tile().columns;
  const BView packed{into, columns, keep ? columns * k : 0};
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, packed, b, b_row, c, c_stride, accumulate, Factors::f32);
  return packed;
}

AView plain_a(const float* data, std::int64_t row, std::int64_t col) {
  return {data, row, col, row * micro_tile().rows};
}
BView plain_b(const float* data, std::int64_t row) { return {data, row, micro_tile().columns}; }

}  // namespace meshloom::backends::cpu
#endif
