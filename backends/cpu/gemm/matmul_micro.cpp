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

// What a call of the inner loop does besides multiplying.
enum class SideTask : std::uint8_t {
  none,
  prefetch_a,  // prefetches the next rows of A
  unpacked_b,  // reads B unpacked and prefetches the panel to its right
  pack_b,      // as unpacked_b, and stores a packed copy
  prefetch_b,  // prefetches a part of the unpacked B that will be packed next
};

// `count` strips of A that follow each other, `a` floats apart; their tiles of C are `c` floats apart.
struct Strips {
  std::int64_t count, a, c;
};

// Distances are in floats.
struct Panels {
  std::int64_t second = 0;  // from the first panel of B to the second, where two are multiplied at once
  std::int64_t prefetch_distance = 0;  // from an unpacked B to what is prefetched
  // What SideTask::prefetch_b prefetches: `rows` rows of B from `next` on, next_row apart.
  const float* next = nullptr;
  std::int64_t next_row = 0, rows = 0;
};

#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
#define MESHLOOM_BF16_PAIRS 1
#else
#define MESHLOOM_BF16_PAIRS 0
#endif

template <OperandType OPERANDS>
HWY_INLINE hn::Vec<D> Product([[maybe_unused]] D d, hn::Vec<D> a, hn::Vec<D> b,
                              [[maybe_unused]] hn::Vec<D> sum, bool first) {
#if MESHLOOM_BF16_PAIRS
  if constexpr (OPERANDS == OperandType::bf16_pairs) {
    if (first) sum = hn::Zero(d);
    // Inline assembly, since the instruction set that this is compiled for does not include it.
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
#endif
  // The first step only multiplies: starting from zeros costs a product of 64 steps 4 % on Zen 3.
  return first ? hn::Mul(a, b) : hn::MulAdd(a, b, sum);
}

// Unrolled by the language, since the compiler unrolls a loop too late to keep every sum in a register.
// `body` must be inlined for the same reason.
template <int... ROW, typename Body>
HWY_INLINE void ForEach(std::integer_sequence<int, ROW...>, Body body) {
  (body(std::integral_constant<int, ROW>()), ...);
}
#define MESHLOOM_INLINE_ATTR HWY_ATTR __attribute__((always_inline))

template <OperandType OPERANDS, int PANELS, int ROWS, SideTask SIDE_TASK>
HWY_NOINLINE void Micro(const Strips& strips, std::int64_t k, const float* HWY_RESTRICT first_a,
                        std::int64_t a_row, std::int64_t a_col, const float* HWY_RESTRICT first_b,
                        std::int64_t b_row, const Panels& panels, float* HWY_RESTRICT first_c,
                        std::int64_t c_stride, bool accumulate, float* HWY_RESTRICT packed) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kLine = 16;  // floats of a cache line
  constexpr std::make_integer_sequence<int, ROWS> kEveryRow;
  const std::int64_t second = panels.second, prefetch_distance = panels.prefetch_distance;
  std::int64_t prefetched_b = 0;
  for (std::int64_t strip = 0; strip < strips.count; ++strip) {
    const float *a = first_a + strip * strips.a, *b = first_b;
    float* const c = first_c + strip * strips.c;
    // With many rows every third has its own pointer: a single pointer would need more registers for the
    // offsets than there are.
    constexpr int kShare = kRows > 6 ? 3 : kRows, kPointers = (ROWS + kShare - 1) / kShare;
    const float* shared[kPointers];
    for (int i = 0; i < kPointers; ++i) {
      shared[i] = a + kShare * i * a_row;
      if constexpr (kPointers > 1)
        __asm__("" : "+r"(shared[i]));  // keeps the compiler from replacing them by offsets
    }
    constexpr int kSecondRows = PANELS > 1 ? ROWS : 1;
    hn::Vec<D> sums0[ROWS], sums1[ROWS], sums2[kSecondRows], sums3[kSecondRows];
    const auto step_of = [&](auto first) MESHLOOM_INLINE_ATTR {
      const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
      if constexpr (SIDE_TASK == SideTask::unpacked_b || SIDE_TASK == SideTask::pack_b)
        for (std::int64_t j = 0; j < 2 * lanes; j += kLine) hwy::Prefetch(b + prefetch_distance + j);
      if constexpr (SIDE_TASK == SideTask::pack_b) {
        hn::Store(b0, d, packed);
        hn::Store(b1, d, packed + lanes);
        packed += 2 * lanes;
      }
      hn::Vec<D> b2 = b0, b3 = b1;
      if constexpr (PANELS > 1) {
        b2 = hn::LoadU(d, b + second);
        b3 = hn::LoadU(d, b + second + lanes);
      }
      ForEach(kEveryRow, [&](auto i) MESHLOOM_INLINE_ATTR {
        const auto factor = hn::Set(d, shared[i / kShare][i % kShare * a_row]);
        sums0[i] = Product<OPERANDS>(d, factor, b0, sums0[i], first);
        sums1[i] = Product<OPERANDS>(d, factor, b1, sums1[i], first);
        if constexpr (PANELS > 1) {
          sums2[i] = Product<OPERANDS>(d, factor, b2, sums2[i], first);
          sums3[i] = Product<OPERANDS>(d, factor, b3, sums3[i], first);
        }
      });
      for (int i = 0; i < kPointers; ++i) {
        shared[i] += a_col;
        if constexpr (PANELS > 1)
          __asm__("" : "+r"(shared[i]));  // keeps the additions out of a vector that is then stored
      }
      b += b_row;
    };
    const auto prefetch_a = [&] {
      if constexpr (SIDE_TASK == SideTask::prefetch_a)
        for (int i = 0; i < ROWS; ++i) hwy::Prefetch(shared[0] + (ROWS + i) * a_row);
    };
    // C is needed after the loop, which is late enough for a prefetch from memory. Many prefetches at once would
    // delay the loop's own loads, so many rows are spread over its steps.
    constexpr bool kSpread = kRows > 6;
    const bool worthwhile = k >= (accumulate ? 4 : 8) * kLine;
    const std::int64_t rows_at_once = !worthwhile ? 0 : kSpread ? ceil_div(ROWS * kLine, k) : ROWS;
    std::int64_t prefetched_c = 0;
    const auto prefetch_c = [&] {
      for (const std::int64_t until = std::min<std::int64_t>(ROWS, prefetched_c + rows_at_once);
           prefetched_c < until; ++prefetched_c)
        for (std::int64_t j = 0; j < 2 * PANELS * lanes; j += kLine)
          hwy::Prefetch(c + prefetched_c * c_stride + j);
    };
    // Into the L2 cache, since L1 is full of the operands.
    const auto prefetch_b = [&](std::int64_t step) {
      if constexpr (SIDE_TASK == SideTask::prefetch_b)
        for (const std::int64_t until = panels.rows * (strip * k + step) / (strips.count * k);
             prefetched_b < until; ++prefetched_b)
          for (std::int64_t j = 0; j < 2 * PANELS * lanes; j += kLine)
            __builtin_prefetch(panels.next + prefetched_b * panels.next_row + j, 0, 2);
    };
    prefetch_a();
    step_of(std::true_type());
    for (std::int64_t step = 1; step < k;) {
      prefetch_c();
      constexpr bool kInChunks =
          SIDE_TASK == SideTask::prefetch_a || SIDE_TASK == SideTask::prefetch_b || kSpread;
      const std::int64_t stop = kInChunks ? std::min(k, round_up(step + 1, kLine)) : k;
      prefetch_b(stop);
      for (; step < stop; ++step) step_of(std::false_type());
      if (step < k) prefetch_a();
    }
    const auto store = [&](hn::Vec<D> sum, float* to) MESHLOOM_INLINE_ATTR {
      hn::StoreU(accumulate ? hn::Add(sum, hn::LoadU(d, to)) : sum, d, to);
    };
    ForEach(kEveryRow, [&](auto i) MESHLOOM_INLINE_ATTR {
      float* row = c + i * c_stride;
      store(sums0[i], row);
      store(sums1[i], row + lanes);
      if constexpr (PANELS > 1) {
        store(sums2[i], row + 2 * lanes);
        store(sums3[i], row + 3 * lanes);
      }
    });
  }
}

using MicroFunction = void (*)(const Strips&, std::int64_t, const float*, std::int64_t, std::int64_t,
                               const float*, std::int64_t, const Panels&, float*, std::int64_t, bool, float*);

template <OperandType OPERANDS, int PANELS, SideTask SIDE_TASK>
MicroFunction MicroFor(std::int64_t rows) {
  static constexpr auto kTable = []<int... ROW>(std::integer_sequence<int, ROW...>) {
    return std::array<MicroFunction, kRows / PANELS>{Micro<OPERANDS, PANELS, ROW + 1, SIDE_TASK>...};
  }
  (std::make_integer_sequence<int, kRows / PANELS>());
  return kTable[static_cast<std::size_t>(rows - 1)];
}

// Rows of the next strip when `left` rows remain; a strip has at most `height`. A strip of few rows cannot hide
// the latency of the multiply-adds, so evenly spaced rows (`even`) end with two strips of about the same height.
std::int64_t StripRows(std::int64_t left, bool even, std::int64_t height = kRows) {
  if (even && left > height && left < height + height / 2) return (left + 1) / 2;
  return std::min(height, left);
}

// The number of strips of `rows` rows that follow each other when `left` rows remain.
std::int64_t EqualStrips(std::int64_t left, std::int64_t rows, bool even, std::int64_t height = kRows) {
  if (rows < height) return 1;
  const std::int64_t rest = left % height;
  return left / height - (even && rest > 0 && rest < height / 2 ? 1 : 0);
}

#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
// Blocks of 6 rows by two panels instead of 12 rows by one panel need a third fewer loads: 7 to 11 % faster on
// Intel, measured on shared cores. Not tried on AMD.
bool UsesTwoPanels(std::int64_t n) {
  static const bool takes = __builtin_cpu_is("intel");
  return takes && n >= 2 * Columns();
}
#else
bool UsesTwoPanels(std::int64_t) { return false; }
#endif

// `unpacked` is null, or, for f32 only, the unpacked B, which is packed into b (whose rows and panels are dense).
template <OperandType OPERANDS>
void GemmOf(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b,
            const float* unpacked, std::int64_t unpacked_row, float* c, std::int64_t c_stride,
            bool accumulate) {
  constexpr bool kF32 = OPERANDS == OperandType::f32, kTwoPanels = kF32 && kRows > 6;
  const std::int64_t columns = Columns();
  const bool even = a.strip == kRows * a.row;
  const bool two_panels = kTwoPanels && UsesTwoPanels(n);
  const auto panel = [&](std::int64_t j) {
    const bool second = two_panels && b.panel == 0 && j / columns % 2 == 1;
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
      MicroFor<OPERANDS, 1, SideTask::none>(rows)(kOne, k, strip(i), a.row, a.col, panel(j), b.row, {}, sums,
                                                  columns, accumulate, nullptr);
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * columns, width, to + r * c_stride);
    }
  };
  // Multiplies the first strip, which packs the panel; returns its rows.
  const auto first_strip = [&]([[maybe_unused]] std::int64_t j) {
    std::int64_t rows = 0;
    if constexpr (kF32)
      if (unpacked != nullptr) {
        constexpr std::int64_t kRowsAhead = 16;
        rows = StripRows(m, even);
        const bool only = rows == m && b.panel == 0;
        const Panels panels{.prefetch_distance = two_panels && !only ? kRowsAhead * unpacked_row : columns};
        run(only ? MicroFor<OPERANDS, 1, SideTask::unpacked_b>(rows)
                 : MicroFor<OPERANDS, 1, SideTask::pack_b>(rows),
            kOne, 0, j, unpacked + j, unpacked_row, panels, only ? nullptr : const_cast<float*>(panel(j)));
      }
    return rows;
  };
  // Multiplies the rows from `begin` on by `at_once` packed panels.
  const auto rest = [&](auto at_once, std::int64_t j, std::int64_t begin) {
    constexpr std::int64_t kHeight = kRows / at_once;
    constexpr bool kOnePanel = at_once == 1;
    const std::int64_t width = at_once * columns;
    const bool prefetches = !kOnePanel && unpacked != nullptr && j + 2 * width <= n;
    const auto share = [&](std::int64_t until) { return k * (until - begin) / (m - begin); };
    for (std::int64_t i = begin, count = 0, rows = 0; i < m; i += count * rows) {
      // A packed A has strips of kRows rows: lower strips are parts of them.
      const bool whole = even || kOnePanel;
      rows = StripRows(m - i, even, kHeight);
      count = EqualStrips(whole ? m - i : std::min(m - i, kRows - i % kRows), rows, even, kHeight);
      Panels panels;
      MicroFunction micro = j == 0 && a.col == 1 ? MicroFor<OPERANDS, at_once, SideTask::prefetch_a>(rows)
                                                 : MicroFor<OPERANDS, at_once, SideTask::none>(rows);
      if constexpr (!kOnePanel) {
        panels.second = panel(j + columns) - panel(j);
        if (prefetches) {
          panels.next = unpacked + j + width + share(i) * unpacked_row;
          panels.next_row = unpacked_row;
          panels.rows = share(i + count * rows) - share(i);
          micro = MicroFor<OPERANDS, at_once, SideTask::prefetch_b>(rows);
        }
      }
      run(micro, {count, even || !kOnePanel ? rows * a.row : a.strip, rows * c_stride}, i, j, panel(j), b.row,
          panels, nullptr);
    }
  };
  for (std::int64_t j = 0; j < n; j += columns) {
    if (j + columns > n) {
      if constexpr (kF32)
        if (unpacked != nullptr)
          pack_b(unpacked + j, unpacked_row, 1, k, n - j, const_cast<float*>(panel(j)));
      edge(j);
      continue;
    }
    const std::int64_t begin = first_strip(j);
    if constexpr (kTwoPanels)
      if (two_panels && j + 2 * columns <= n) {
        first_strip(j + columns);
        rest(std::integral_constant<int, 2>(), j, begin);
        j += columns;
        continue;
      }
    rest(std::integral_constant<int, 1>(), j, begin);
  }
}

void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b,
          const float* unpacked, std::int64_t unpacked_row, float* c, std::int64_t c_stride, bool accumulate,
          [[maybe_unused]] OperandType operand_type) {
#if MESHLOOM_BF16_PAIRS
  if (operand_type == OperandType::bf16_pairs) {
    GemmOf<OperandType::bf16_pairs>(m, n, k, a, b, nullptr, 0, c, c_stride, accumulate);
    return;
  }
#endif
  GemmOf<OperandType::f32>(m, n, k, a, b, unpacked, unpacked_row, c, c_stride, accumulate);
}

bool HasBf16Pairs() { return MESHLOOM_BF16_PAIRS != 0; }

double Bf16Loop([[maybe_unused]] std::int64_t rounds) {
#if MESHLOOM_BF16_PAIRS
  const D d;
  constexpr int kChains = 16;  // latency 6 times throughput 2 needs twelve
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  hn::Vec<D> sums[kChains];
  for (auto& sum : sums) sum = x;
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = Product<OperandType::bf16_pairs>(d, x, y, sums[i], false);
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
HWY_EXPORT(UsesTwoPanels);
HWY_EXPORT(Gemm);
HWY_EXPORT(HasBf16Pairs);
HWY_EXPORT(Bf16Loop);

MicroTile micro_tile() { return {HWY_DYNAMIC_DISPATCH(Rows)(), HWY_DYNAMIC_DISPATCH(Columns)()}; }

bool uses_two_panels(std::int64_t columns) { return HWY_DYNAMIC_DISPATCH(UsesTwoPanels)(columns); }

bool supports_bf16_pairs() {
#if defined(__x86_64__)
  // Intel's processors issue vdpbf16ps at a quarter of the rate of multiply-adds: measured 2.3 times slower than
  // multiplying as f32.
  static const bool can = __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel") &&
                          HWY_DYNAMIC_DISPATCH(HasBf16Pairs)();
  return can || bf16_pairs_on_amx();
#else
  return false;
#endif
}

bool bf16_pairs_on_amx() {
  static const bool can = has_amx(AmxProduct::bf16_pairs) && micro_tile().columns == kAmxPanelColumns;
  return can;
}

double run_bf16_loop(std::int64_t rounds) {
  return bf16_pairs_on_amx() ? run_amx_loop(rounds) : HWY_DYNAMIC_DISPATCH(Bf16Loop)(rounds);
}

void micro_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const BView& b, float* c,
                std::int64_t c_stride, bool accumulate, OperandType operand_type) {
  if (operand_type == OperandType::bf16_pairs && bf16_pairs_on_amx()) {
    amx_gemm(AmxProduct::bf16_pairs, m, n, k, {a.data, a.row, b.data, b.row, b.panel, c, c_stride},
             accumulate);
    return;
  }
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, b, nullptr, 0, c, c_stride, accumulate, operand_type);
}

BView micro_gemm_packing(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const float* b,
                         std::int64_t b_row, bool keep, float* into, float* c, std::int64_t c_stride,
                         bool accumulate) {
  const std::int64_t columns = micro_tile().columns;
  const BView packed{into, columns, keep ? columns * k : 0};
  HWY_DYNAMIC_DISPATCH(Gemm)(m, n, k, a, packed, b, b_row, c, c_stride, accumulate, OperandType::f32);
  return packed;
}

AView plain_a(const float* data, std::int64_t row, std::int64_t col) {
  return {data, row, col, row * micro_tile().rows};
}
BView plain_b(const float* data, std::int64_t row) { return {data, row, micro_tile().columns}; }

}  // namespace meshloom::backends::cpu
#endif
