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

// What the inner loop multiplies: strips of A by one or two panels of B. Element (i, k) of the first strip is
// a[i * a_row + k * a_col]; distances are in floats.
struct MicroCall {
  Strips strips;
  std::int64_t k;
  const float* a;
  std::int64_t a_row, a_col;
  const float* b;
  std::int64_t b_row;
  Panels panels;
  float* c;
  std::int64_t c_stride;
  bool accumulate;
  float* packed;  // where SideTask::pack_b writes; else null
};

constexpr std::int64_t kLine = 16;  // floats of a cache line

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

// Many rows at a time spread their prefetches over the steps: all at once would delay the loop's own loads.
constexpr bool kSpreads = kRows > 6;

// Prefetches the rows of A that follow the strip at `a`.
template <int ROWS>
HWY_INLINE void PrefetchA(const float* a, std::int64_t a_row) {
  for (int i = 0; i < ROWS; ++i) hwy::Prefetch(a + (ROWS + i) * a_row);
}

// Prefetches a tile of C while the loop runs. C is needed after the loop, which is late enough for a prefetch from memory.
template <int PANELS, int ROWS>
class PrefetchC {
 public:
  PrefetchC(const MicroCall& call, const float* c) : c_(c), stride_(call.c_stride) {
    const bool worthwhile = call.k >= (call.accumulate ? 4 : 8) * kLine;
    at_once_ = !worthwhile ? 0 : kSpreads ? ceil_div(ROWS * kLine, call.k) : ROWS;
  }
  HWY_INLINE void Next() {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
    for (const std::int64_t until = std::min<std::int64_t>(ROWS, done_ + at_once_); done_ < until; ++done_)
      for (std::int64_t j = 0; j < 2 * PANELS * lanes; j += kLine) hwy::Prefetch(c_ + done_ * stride_ + j);
  }

 private:
  const float* c_;
  std::int64_t stride_, at_once_ = 0, done_ = 0;  // rows
};

// Prefetches the rows of B that are packed next, evenly over all steps of a call, into the L2 cache, since L1 is full of the
// operands.
template <int PANELS>
class PrefetchB {
 public:
  explicit PrefetchB(const MicroCall& call) : panels_(call.panels), steps_(call.strips.count * call.k) {}
  // After `step` of all steps.
  HWY_INLINE void Until(std::int64_t step) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
    for (const std::int64_t until = panels_.rows * step / steps_; done_ < until; ++done_)
      for (std::int64_t j = 0; j < 2 * PANELS * lanes; j += kLine)
        __builtin_prefetch(panels_.next + done_ * panels_.next_row + j, 0, 2);
  }

 private:
  const Panels& panels_;
  std::int64_t steps_, done_ = 0;  // rows
};

template <OperandType OPERANDS, int PANELS, int ROWS, SideTask SIDE_TASK>
HWY_NOINLINE void Micro(const MicroCall& call) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::make_integer_sequence<int, ROWS> kEveryRow;
  const std::int64_t k = call.k, a_row = call.a_row, a_col = call.a_col, b_row = call.b_row,
                     second = call.panels.second, prefetch_distance = call.panels.prefetch_distance;
  float* HWY_RESTRICT packed = call.packed;
  PrefetchB<PANELS> prefetch_b(call);
  for (std::int64_t strip = 0; strip < call.strips.count; ++strip) {
    const float* HWY_RESTRICT a = call.a + strip * call.strips.a;
    const float* HWY_RESTRICT b = call.b;
    float* const HWY_RESTRICT c = call.c + strip * call.strips.c;
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
    PrefetchC<PANELS, ROWS> prefetch_c(call, c);
    if constexpr (SIDE_TASK == SideTask::prefetch_a) PrefetchA<ROWS>(shared[0], a_row);
    step_of(std::true_type());
    for (std::int64_t step = 1; step < k;) {
      prefetch_c.Next();
      constexpr bool kInChunks =
          SIDE_TASK == SideTask::prefetch_a || SIDE_TASK == SideTask::prefetch_b || kSpreads;
      const std::int64_t stop = kInChunks ? std::min(k, round_up(step + 1, kLine)) : k;
      if constexpr (SIDE_TASK == SideTask::prefetch_b) prefetch_b.Until(strip * k + stop);
      for (; step < stop; ++step) step_of(std::false_type());
      if (SIDE_TASK == SideTask::prefetch_a && step < k) PrefetchA<ROWS>(shared[0], a_row);
    }
    const auto store = [&](hn::Vec<D> sum, float* to) MESHLOOM_INLINE_ATTR {
      hn::StoreU(call.accumulate ? hn::Add(sum, hn::LoadU(d, to)) : sum, d, to);
    };
    ForEach(kEveryRow, [&](auto i) MESHLOOM_INLINE_ATTR {
      float* row = c + i * call.c_stride;
      store(sums0[i], row);
      store(sums1[i], row + lanes);
      if constexpr (PANELS > 1) {
        store(sums2[i], row + 2 * lanes);
        store(sums3[i], row + 3 * lanes);
      }
    });
  }
}

using MicroFunction = void (*)(const MicroCall&);

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

// Goes through C a panel of B at a time, or two at a time, and within it a strip of A at a time.
template <OperandType OPERANDS>
class GemmLoop {
 public:
  explicit GemmLoop(const GemmCall& call)
      : p_(call),
        even_(call.a.strip == kRows * call.a.row),
        two_panels_(kTwoPanels && UsesTwoPanels(call.n)) {}

  void Run() const {
    for (std::int64_t j = 0; j < p_.n; j += columns_) {
      if (j + columns_ > p_.n) {
        Edge(j);
        continue;
      }
      const std::int64_t begin = FirstStrip(j);
      if constexpr (kTwoPanels)
        if (two_panels_ && j + 2 * columns_ <= p_.n) {
          FirstStrip(j + columns_);
          Rest<2>(j, begin);
          j += columns_;
          continue;
        }
      Rest<1>(j, begin);
    }
  }

 private:
  static constexpr bool kF32 = OPERANDS == OperandType::f32, kTwoPanels = kF32 && kRows > 6;
  static constexpr Strips kOne{1, 0, 0};

  const float* Panel(std::int64_t j) const {
    const bool second = two_panels_ && p_.b.panel == 0 && j / columns_ % 2 == 1;
    return p_.b.data + (second ? p_.k * columns_ : j / columns_ * p_.b.panel);
  }

  const float* Strip(std::int64_t i) const {
    return p_.a.data + (even_ ? i * p_.a.row : i / kRows * p_.a.strip + i % kRows * p_.a.row);
  }

  // Strips of A from row i on, by the panels of B from column j on, as they are packed.
  MicroCall At(const Strips& strips, std::int64_t i, std::int64_t j) const {
    return {strips,
            p_.k,
            Strip(i),
            p_.a.row,
            p_.a.col,
            Panel(j),
            p_.b.row,
            {},
            p_.c + i * p_.c_stride + j,
            p_.c_stride,
            p_.accumulate,
            nullptr};
  }

  // The columns from j on, which are fewer than a panel has.
  void Edge(std::int64_t j) const {
    const std::int64_t width = p_.n - j;
    if constexpr (kF32)
      if (p_.unpacked != nullptr)
        pack_b(p_.unpacked + j, p_.unpacked_row, 1, p_.k, width, const_cast<float*>(Panel(j)));
    HWY_ALIGN float sums[kRows * 2 * HWY_MAX_BYTES / sizeof(float)];
    for (std::int64_t i = 0, rows = 0; i < p_.m; i += rows) {
      rows = StripRows(p_.m - i, even_);
      float* to = p_.c + i * p_.c_stride + j;
      if (p_.accumulate)
        for (std::int64_t r = 0; r < rows; ++r) std::copy_n(to + r * p_.c_stride, width, sums + r * columns_);
      MicroCall call = At(kOne, i, j);
      call.c = sums;
      call.c_stride = columns_;
      MicroFor<OPERANDS, 1, SideTask::none>(rows)(call);
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * columns_, width, to + r * p_.c_stride);
    }
  }

  // Multiplies the first strip, which packs the panel; returns its rows, 0 where B is packed already.
  std::int64_t FirstStrip([[maybe_unused]] std::int64_t j) const {
    if constexpr (kF32)
      if (p_.unpacked != nullptr) {
        constexpr std::int64_t kRowsAhead = 16;
        const std::int64_t rows = StripRows(p_.m, even_);
        const bool only = rows == p_.m && p_.b.panel == 0;
        MicroCall call = At(kOne, 0, j);
        call.panels.prefetch_distance = two_panels_ && !only ? kRowsAhead * p_.unpacked_row : columns_;
        call.packed = only ? nullptr : const_cast<float*>(call.b);
        call.b = p_.unpacked + j;
        call.b_row = p_.unpacked_row;
        (only ? MicroFor<OPERANDS, 1, SideTask::unpacked_b>(rows)
              : MicroFor<OPERANDS, 1, SideTask::pack_b>(rows))(call);
        return rows;
      }
    return 0;
  }

  // Multiplies the rows from `begin` on by PANELS packed panels.
  template <int PANELS>
  void Rest(std::int64_t j, std::int64_t begin) const {
    constexpr std::int64_t kHeight = kRows / PANELS;
    constexpr bool kOnePanel = PANELS == 1;
    const std::int64_t width = PANELS * columns_;
    const bool prefetches = !kOnePanel && p_.unpacked != nullptr && j + 2 * width <= p_.n;
    const auto share = [&](std::int64_t until) { return p_.k * (until - begin) / (p_.m - begin); };
    for (std::int64_t i = begin, count = 0, rows = 0; i < p_.m; i += count * rows) {
      // A packed A has strips of kRows rows: lower strips are parts of them.
      const bool whole = even_ || kOnePanel;
      rows = StripRows(p_.m - i, even_, kHeight);
      count = EqualStrips(whole ? p_.m - i : std::min(p_.m - i, kRows - i % kRows), rows, even_, kHeight);
      MicroCall call =
          At({count, even_ || !kOnePanel ? rows * p_.a.row : p_.a.strip, rows * p_.c_stride}, i, j);
      MicroFunction micro = j == 0 && p_.a.col == 1 ? MicroFor<OPERANDS, PANELS, SideTask::prefetch_a>(rows)
                                                    : MicroFor<OPERANDS, PANELS, SideTask::none>(rows);
      if constexpr (!kOnePanel) {
        call.panels.second = Panel(j + columns_) - Panel(j);
        if (prefetches) {
          call.panels.next = p_.unpacked + j + width + share(i) * p_.unpacked_row;
          call.panels.next_row = p_.unpacked_row;
          call.panels.rows = share(i + count * rows) - share(i);
          micro = MicroFor<OPERANDS, PANELS, SideTask::prefetch_b>(rows);
        }
      }
      micro(call);
    }
  }

  const GemmCall& p_;
  std::int64_t columns_ = Columns();
  bool even_;        // the rows of A are equally far apart, across strips too
  bool two_panels_;  // are multiplied at once
};

void Gemm(const GemmCall& call, [[maybe_unused]] OperandType operand_type) {
#if MESHLOOM_BF16_PAIRS
  if (operand_type == OperandType::bf16_pairs) {
    GemmLoop<OperandType::bf16_pairs>(call).Run();
    return;
  }
#endif
  GemmLoop<OperandType::f32>(call).Run();
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
  HWY_DYNAMIC_DISPATCH(Gemm)({m, n, k, a, b, nullptr, 0, c, c_stride, accumulate}, operand_type);
}

BView micro_gemm_packing(std::int64_t m, std::int64_t n, std::int64_t k, const AView& a, const float* b,
                         std::int64_t b_row, bool keep, float* into, float* c, std::int64_t c_stride,
                         bool accumulate) {
  const std::int64_t columns = micro_tile().columns;
  const BView packed{into, columns, keep ? columns * k : 0};
  HWY_DYNAMIC_DISPATCH(Gemm)({m, n, k, a, packed, b, b_row, c, c_stride, accumulate}, OperandType::f32);
  return packed;
}

AView plain_a(const float* data, std::int64_t row, std::int64_t col) {
  return {data, row, col, row * micro_tile().rows};
}
BView plain_b(const float* data, std::int64_t row) { return {data, row, micro_tile().columns}; }

}  // namespace meshloom::backends::cpu
#endif
