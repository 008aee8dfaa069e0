// Products of weights in blocks with activations of 8 bits. A panel of weights is unpacked into the cache, some columns at a time, and
// multiplied by all rows of x. There is one order of sums whatever the number of rows: groups in order of k, each an exact integer that
// is scaled and added with one rounding.
#include "backends/cpu/kernels/block_quantized/block_quantized_int8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backends/cpu/kernels/block_quantized/block_panels.h"
#include "backends/cpu/kernels/rows.h"
#include "kernels/block_quantized/block_quantized.h"
#include "kernels/int8_matmul/int8_matmul.h"

// Only files of products of bytes are compiled for instruction sets that have them.
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/block_quantized/block_quantized_int8.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/kernels/block_quantized/block_panel-inl.h"
#include "backends/cpu/simd/multiply_add_bytes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {

using DSums = hn::RebindToSigned<DWords>;
using Sums = hn::Vec<DSums>;

// Rows of x in registers.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kRows = 6;
#else
constexpr int kRows = 3;
#endif

// Without products of four bytes, products of two bytes are added up in int16 where codes are small: over so many words of a group, or
// 0 for codes of eight bits, which are widened to int16 first.
int RunOf(const kernels::block_quantized::Format& format) {
  if (!kMultipliesBytePairs || format.offset == 128) return 0;
  if (format.id == FormatId::q6_k) return 2;  // 63 * 127 * 2 * 2 < 2^15
  const bool wide = format.id == FormatId::q5_0 || format.id == FormatId::q5_1 || format.id == FormatId::q5_k;
  return wide ? 4 : 8;  // 31 * 127 * 2 * 4, 15 * 127 * 2 * 8
}
// Words of x of four columns: as bytes, or as int16.
constexpr bool HoldsBytes(int run) { return kMultipliesBytes || run > 0; }

// --- rounding of x -----------------------------------------------------------------------------------------

// The bits of the largest magnitude of 32 numbers, which are in the order of magnitudes; those of NaN are above all others.
std::uint32_t LargestOfBlock(const float* x) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  auto most = hn::Zero(di);
  for (std::size_t i = 0; i < 32; i += hn::Lanes(d))
    most = hn::Max(most, hn::And(hn::BitCast(di, hn::LoadU(d, x + i)), hn::Set(di, 0x7fffffff)));
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
}

void RoundRow(const float* x, std::int64_t k, const kernels::block_quantized::Format& format,
              const RoundedRow& to) {
  const std::int64_t group = format.group;
  const std::int32_t offset = format.offset;
  const bool as_bytes = HoldsBytes(RunOf(format));
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::int8_t, decltype(d)> d8;
  HWY_ALIGN std::int8_t codes[32];
  for (std::int64_t block = 0; block < k / 32; ++block, x += 32) {
    const std::uint32_t bits = LargestOfBlock(x);
    float largest;
    std::memcpy(&largest, &bits, 4);
    const float inverse = kernels::inverse_scale(largest);
    const float scale = inverse == 0 ? 1.0f : 1.0f / inverse;
    std::int32_t sums[2] = {0, 0};
    if (inverse > 0) {
      for (std::size_t half = 0; half < 2; ++half) {
        auto sum = hn::Zero(di);
        for (std::size_t i = 16 * half; i < 16 * half + 16; i += hn::Lanes(d)) {
          const auto code = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse)));
          hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
          sum = hn::Add(sum, code);
        }
        sums[half] = hn::GetLane(hn::SumOfLanes(di, sum));
      }
    } else {
      std::fill_n(codes, 32, std::int8_t{0});
    }
    to.scales[block] = scale;
    to.sums[block] = scale * static_cast<float>(sums[0] + sums[1]);
    if (group == 32) {
      to.corrections[block] = -offset * (sums[0] + sums[1]);
    } else {
      to.corrections[2 * block] = -offset * sums[0];
      to.corrections[2 * block + 1] = -offset * sums[1];
    }
    std::uint32_t* words = to.words + block * (as_bytes ? 8 : 16);
    if (as_bytes) {
      std::memcpy(words, codes, sizeof codes);
      continue;
    }
    for (int w = 0; w < 8; ++w) {
      const auto pair = [&](int low, int high) {
        return static_cast<std::uint32_t>(static_cast<std::uint16_t>(codes[4 * w + low])) |
               static_cast<std::uint32_t>(static_cast<std::uint16_t>(codes[4 * w + high])) << 16;
      };
      words[2 * w] = pair(0, 2);
      words[2 * w + 1] = pair(1, 3);
    }
  }
}

// --- products ----------------------------------------------------------------------------------------------

// sums += the products of RUN words of codes, of two vectors of W's rows, and of x.
template <int ROWS, int RUN>
HWY_INLINE void MultiplyAddWords(const std::uint32_t* codes, const std::uint32_t* x, std::int64_t x_row,
                                 Sums* a, Sums* b) {
  const DSums d;
  const DWords dw;
#if HWY_TARGET <= HWY_SSE4 && defined(__x86_64__)
  if constexpr (kMultipliesBytePairs && RUN > 0) {
    const hn::RepartitionToNarrow<DSums> d16;
    hn::Vec<decltype(d16)> left[ROWS], right[ROWS];
#pragma GCC unroll 8
    for (int w = 0; w < RUN; ++w) {
      const Words c0 = hn::Load(dw, codes + w * kPanelRows),
                  c1 = hn::Load(dw, codes + w * kPanelRows + kVectorRows);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; ++i) {
        const Words word = hn::Set(dw, x[i * x_row + w]);
        const auto p0 = hn::BitCast(d16, MultiplyBytePairs(c0, word)),
                   p1 = hn::BitCast(d16, MultiplyBytePairs(c1, word));
        left[i] = w == 0 ? p0 : hn::Add(left[i], p0);
        right[i] = w == 0 ? p1 : hn::Add(right[i], p1);
      }
    }
    const Sums ones = hn::Set(d, 0x00010001);
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
      a[i] = MultiplyAddPairs(d, hn::BitCast(d, left[i]), ones, a[i]);
      b[i] = MultiplyAddPairs(d, hn::BitCast(d, right[i]), ones, b[i]);
    }
    return;
  }
#endif
  static_assert(RUN == 0 || kMultipliesBytePairs);
  const Words c0 = hn::Load(dw, codes), c1 = hn::Load(dw, codes + kVectorRows);
  if constexpr (kMultipliesBytes) {
#if HWY_TARGET <= HWY_AVX3_DL && defined(__x86_64__)
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
      const Sums word = hn::BitCast(d, hn::Set(dw, x[i * x_row]));
      a[i] = MultiplyAddBytes(hn::BitCast(d, c0), word, a[i]);
      b[i] = MultiplyAddBytes(hn::BitCast(d, c1), word, b[i]);
    }
#endif
  } else {
    const Sums even0 = hn::BitCast(d, Bits<0>(c0, 0x00ff00ffu)),
               odd0 = hn::BitCast(d, Bits<8>(c0, 0x00ff00ffu)),
               even1 = hn::BitCast(d, Bits<0>(c1, 0x00ff00ffu)),
               odd1 = hn::BitCast(d, Bits<8>(c1, 0x00ff00ffu));
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
      const Sums even = hn::BitCast(d, hn::Set(dw, x[i * x_row])),
                 odd = hn::BitCast(d, hn::Set(dw, x[i * x_row + 1]));
      a[i] = MultiplyAddPairs(d, odd0, odd, MultiplyAddPairs(d, even0, even, a[i]));
      b[i] = MultiplyAddPairs(d, odd1, odd, MultiplyAddPairs(d, even1, even, b[i]));
    }
  }
}

// Adds to sums (ROWS, kPanelRows) the products of `groups` groups of a panel's tile. x: the first column's place in the first row, whose
// parts are each x_row words from those of the next.
template <int ROWS, int GROUP, bool MINIMUM, int RUN>
HWY_INLINE void MultiplyTile(std::int64_t groups, const PanelTile& tile, const RoundedRow& x,
                             std::int64_t x_row, float* HWY_RESTRICT out) {
  const DSums d;
  const DFloats df;
  constexpr int kWords = GROUP / 4;
  Floats left[ROWS], right[ROWS];
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
    left[i] = hn::Load(df, out + i * kPanelRows);
    right[i] = hn::Load(df, out + i * kPanelRows + kVectorRows);
  }
  const std::uint32_t* codes = tile.words;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t block = GROUP == 32 ? g : g / 2;  // of x
    Sums a[ROWS], b[ROWS];
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) a[i] = b[i] = hn::Set(d, x.corrections[i * x_row + g]);
    constexpr int kStep = RUN > 0 ? RUN : 1, kXWords = HoldsBytes(RUN) ? 1 : 2;
#pragma GCC unroll 8
    for (int w = 0; w < kWords; w += kStep, codes += kStep * kPanelRows)
      MultiplyAddWords<ROWS, RUN>(codes, x.words + (g * kWords + w) * kXWords, x_row, a, b);
    const Floats s0 = hn::Load(df, tile.scales + g * kPanelRows),
                 s1 = hn::Load(df, tile.scales + g * kPanelRows + kVectorRows);
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
      const Floats scale = hn::Set(df, x.scales[i * x_row + block]);
      left[i] = hn::MulAdd(hn::ConvertTo(df, a[i]), hn::Mul(s0, scale), left[i]);
      right[i] = hn::MulAdd(hn::ConvertTo(df, b[i]), hn::Mul(s1, scale), right[i]);
    }
    if constexpr (MINIMUM) {
      const Floats m0 = hn::Load(df, tile.minimums + g * kPanelRows),
                   m1 = hn::Load(df, tile.minimums + g * kPanelRows + kVectorRows);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; ++i) {
        const Floats sum = hn::Set(df, x.sums[i * x_row + block]);
        left[i] = hn::MulAdd(m0, sum, left[i]);
        right[i] = hn::MulAdd(m1, sum, right[i]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
    hn::Store(left[i], df, out + i * kPanelRows);
    hn::Store(right[i], df, out + i * kPanelRows + kVectorRows);
  }
}

using TileFunction = void (*)(std::int64_t, const PanelTile&, const RoundedRow&, std::int64_t, float*);

template <int GROUP, bool MINIMUM, int RUN>
void MultiplyRows(std::int64_t rows, std::int64_t groups, const PanelTile& tile, RoundedRow x,
                  std::int64_t x_row, float* out) {
  static constexpr auto kTable = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array<TileFunction, kRows>{
        +[](std::int64_t n, const PanelTile& t, const RoundedRow& from, std::int64_t row, float* to)
             HWY_ATTR { MultiplyTile<I + 1, GROUP, MINIMUM, RUN>(n, t, from, row, to); }...};
  }
  (std::make_integer_sequence<int, kRows>());
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t count = std::min<std::int64_t>(kRows, rows - i), step = kRows * x_row;
    kTable[static_cast<std::size_t>(count - 1)](groups, tile, x, x_row, out + i * kPanelRows);
    x = {x.words + step, x.scales + step, x.sums + step, x.corrections + step};
  }
}

using RowsFunction = void (*)(std::int64_t, std::int64_t, const PanelTile&, RoundedRow, std::int64_t, float*);

// kMultipliesBytePairs ? N : 0, as a run that is never taken need not be compiled.
template <int N>
constexpr int kRun = kMultipliesBytePairs ? N : 0;

RowsFunction RowsOf(const kernels::block_quantized::Format& format) {
  const int run = RunOf(format);
  if (format.group == 16) return MultiplyRows<16, false, kRun<2>>;
  if (format.has_minimum) return run == 4 ? MultiplyRows<32, true, kRun<4>> : MultiplyRows<32, true, kRun<8>>;
  return run == 8   ? MultiplyRows<32, false, kRun<8>>
         : run == 4 ? MultiplyRows<32, false, kRun<4>>
                    : MultiplyRows<32, false, 0>;
}

// --- one row of x ------------------------------------------------------------------------------------------

// With products of four bytes a block is multiplied where it lies: unpacking it would cost more than a row of x repays.
template <FormatId ID>
constexpr bool kMultipliesInPlace = kMultipliesBytes&& kVectorRows == 16 &&
                                    (ID == FormatId::q8_0 || ID == FormatId::q4_0);
// The most blocks of rows of W that are summed together.
constexpr std::int64_t kBlocksInPlace = 1024;
// Bytes from blocks that are multiplied to those whose cache lines are asked for, in the L2 cache. The processor fetches the rest of a page
// of 4 KiB by itself: to ask within the same page, or for the L1 cache, takes half its speed.
constexpr std::int64_t kAheadInPlace = 16 << 10;
constexpr std::int64_t kRepeatedBlocks = kBlocksInPlace + 16;

PanelShape Int8Shape() {
  PanelShape shape = Shape();
  shape.scratch = std::max(shape.scratch, 10 * kRepeatedBlocks + 2 * kBlocksInPlace);
  return shape;
}

#if HWY_TARGET <= HWY_AVX3_DL && defined(__x86_64__)
template <FormatId ID>
constexpr std::int64_t BlockBytes() {
  return ID == FormatId::q8_0 ? 34 : 18;
}

// How many rows of so many blocks are summed together, whose blocks are a multiple of 16; 0 = rows are too long, or no such number is.
std::int64_t RowsInPlace(std::int64_t blocks) {
  for (std::int64_t rows = 16; rows > 0; rows /= 2)
    if (rows * blocks <= kBlocksInPlace) return rows * blocks % 16 == 0 ? rows : 0;
  return 0;
}

// A row of x whose first 16 blocks stand behind its last again, so that 16 blocks from anywhere are at hand; and room for what is made of
// W's blocks.
struct RepeatedRow {
  std::uint32_t* words;        // of codes of 4 bits: those of the first halves of blocks
  std::uint32_t* upper_words;  // those of the second halves
  float* scales;
  std::int32_t* corrections;
  float *products, *factors;  // kBlocksInPlace each
};

template <FormatId ID>
RepeatedRow Repeat(const RoundedRow& x, std::int64_t blocks, float* scratch) {
  const auto cut = [&](std::int64_t floats) { return std::exchange(scratch, scratch + floats); };
  RepeatedRow to{};
  to.words = reinterpret_cast<std::uint32_t*>(cut(8 * kRepeatedBlocks));
  to.upper_words = to.words + 4 * kRepeatedBlocks;
  to.scales = cut(kRepeatedBlocks);
  to.corrections = reinterpret_cast<std::int32_t*>(cut(kRepeatedBlocks));
  to.products = cut(kBlocksInPlace);
  to.factors = cut(kBlocksInPlace);
  for (std::int64_t i = 0, b = 0; i < blocks + 16; ++i, b = b + 1 == blocks ? 0 : b + 1) {
    if constexpr (ID == FormatId::q8_0) {
      std::memcpy(to.words + 8 * i, x.words + 8 * b, 32);
    } else {
      std::memcpy(to.words + 4 * i, x.words + 8 * b, 16);
      std::memcpy(to.upper_words + 4 * i, x.words + 8 * b + 4, 16);
    }
    to.scales[i] = x.scales[b];
    to.corrections[i] = x.corrections[b];
  }
  return to;
}

// Of four vectors v0 to v3 and each block of four lanes: the sums of the block of v0, of v1, v2 and v3.
HWY_INLINE Sums SumsOfBlocks(Sums v0, Sums v1, Sums v2, Sums v3) {
  const DSums d;
  const auto pairs = [d](Sums x, Sums y) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y));
  };
  return pairs(pairs(v0, v2), pairs(v1, v3));
}

// The f16 scales of 16 blocks, which stand before their codes.
template <std::int64_t BYTES>
HWY_INLINE Floats ScalesOf(const std::uint8_t* from) {
  const hn::Repartition<std::uint16_t, DWords> d;
  // Those of four blocks, in their lanes: of one load of 64 bytes, or of two where the blocks are longer.
  constexpr int kOfLoad = 64 / BYTES >= 3 ? 4 : 2;
  const auto four = [from, d]<int J>() HWY_ATTR {
    alignas(64) static constexpr auto kLanes = [] {
      std::array<std::uint16_t, 32> lanes{};
      for (int i = 0; i < 4; ++i)
        lanes[static_cast<std::size_t>(4 * J + i)] =
            static_cast<std::uint16_t>(i % kOfLoad * (BYTES / 2) + i / kOfLoad * 32);
      return lanes;
    }();
    const auto load = [&](std::int64_t block) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(from + (4 * J + block) * BYTES));
    };
    return hn::Vec<decltype(d)>{
        _mm512_permutex2var_epi16(load(0).raw, hn::Load(d, kLanes.data()).raw, load(kOfLoad % 4).raw)};
  };
  const auto low = hn::IfThenElse(hn::FirstN(d, 4), four.template operator()<0>(),
                                  four.template operator()<1>()),
             high = hn::IfThenElse(hn::FirstN(d, 12), four.template operator()<2>(),
                                   four.template operator()<3>());
  const auto all = hn::IfThenElse(hn::FirstN(d, 8), low, high);
  return hn::PromoteTo(DFloats(), hn::BitCast(hn::Rebind<hwy::float16_t, DFloats>(), hn::LowerHalf(all)));
}

// The exact sums of 16 blocks that stand one behind another, times as many of x.
template <FormatId ID>
HWY_INLINE Sums MultiplyBlocks(const std::uint8_t* from, const RepeatedRow& x, std::int64_t first) {
  const DSums d;
  const DWords dw;
  const auto words = [](const std::uint8_t* at)
                         HWY_ATTR { return reinterpret_cast<const std::uint32_t*>(at); };
  const auto load_x = [&](const std::uint32_t* at) HWY_ATTR { return hn::BitCast(d, hn::LoadU(dw, at)); };
  constexpr std::int64_t kBytes = BlockBytes<ID>();
  if constexpr (ID == FormatId::q8_0) {
    const hn::Full256<std::uint32_t> d8;
    const Words flip = hn::Set(dw, 0x80808080u);
    const auto product = [&](int i) HWY_ATTR {  // blocks 2 i and 2 i + 1
      const std::uint8_t* at = from + 2 * i * kBytes + 2;
      const Words codes = hn::Combine(dw, hn::LoadU(d8, words(at + kBytes)), hn::LoadU(d8, words(at)));
      return MultiplyAddBytes(hn::BitCast(d, hn::Xor(codes, flip)), load_x(x.words + (first + 2 * i) * 8),
                              hn::Zero(d));
    };
    const Sums low = SumsOfBlocks(product(0), product(1), product(2), product(3)),
               high = SumsOfBlocks(product(4), product(5), product(6), product(7));
    const auto halves = [](Sums v) HWY_ATTR { return hn::Add(v, hn::SwapAdjacentBlocks(v)); };
    alignas(64) static constexpr std::int32_t kOrder[16] = {0, 8,  1, 9,  2, 10, 3, 11,
                                                            4, 12, 5, 13, 6, 14, 7, 15};
    return hn::TableLookupLanes(hn::OddEvenBlocks(halves(high), halves(low)), hn::SetTableIndices(d, kOrder));
  } else {
    const hn::Full128<std::uint32_t> d4;
    constexpr std::uint32_t kNibbles = 0x0f0f0f0fu;
    const auto product = [&](int i) HWY_ATTR {  // blocks 4 i to 4 i + 3
      const auto load = [&](std::int64_t r)
                            HWY_ATTR { return hn::LoadU(d4, words(from + (4 * i + r / 4) * kBytes + 2)); };
      const Words codes = RowsFrom<16>(load, 0);
      const std::int64_t at = (first + 4 * i) * 4;
      return MultiplyAddBytes(
          hn::BitCast(d, Bits<4>(codes, kNibbles)), load_x(x.upper_words + at),
          MultiplyAddBytes(hn::BitCast(d, Bits<0>(codes, kNibbles)), load_x(x.words + at), hn::Zero(d)));
    };
    alignas(64) static constexpr std::int32_t kOrder[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                            2, 6, 10, 14, 3, 7, 11, 15};
    return hn::TableLookupLanes(SumsOfBlocks(product(0), product(1), product(2), product(3)),
                                hn::SetTableIndices(d, kOrder));
  }
}

// The sums of ROWS rows of W, side by side as each waits for its last addition.
template <int ROWS>
HWY_INLINE void SumRows(const RepeatedRow& x, std::int64_t at, std::int64_t blocks, float* HWY_RESTRICT out) {
  float sums[ROWS] = {};
  for (std::int64_t b = at; b < at + blocks; ++b)
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
      sums[i] = __builtin_fmaf(x.products[i * blocks + b], x.factors[i * blocks + b], sums[i]);
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) out[i] = sums[i];
}

// Writes the sums of one row of x, with the roundings of MultiplyTile. W's rows are read as one stream, in the order of
// addresses: of 16 blocks at a time the exact sums and the scales, whichever rows they are of, then the sums of whole rows.
template <FormatId ID>
void MultiplyInPlace(const PanelProduct& p, const RoundedRow& row) {
  const DFloats df;
  const DSums d;
  constexpr std::int64_t kBytes = BlockBytes<ID>();
  const std::int64_t blocks = p.k / 32, rows = RowsInPlace(blocks);
  const RepeatedRow x = Repeat<ID>(row, blocks, p.scratch);
  for (std::int64_t r = 0; r < kPanelRows; r += rows) {
    const std::uint8_t* from = p.panel + r * p.row;
    for (std::int64_t i = 0, first = 0; i < rows * blocks; i += 16, from += 16 * kBytes) {
      PrefetchRun(from + kAheadInPlace, 16 * kBytes);
      const Sums product = MultiplyBlocks<ID>(from, x, first);
      hn::Store(hn::ConvertTo(df, hn::Add(product, hn::LoadU(d, x.corrections + first))), df, x.products + i);
      hn::Store(hn::Mul(ScalesOf<kBytes>(from), hn::LoadU(df, x.scales + first)), df, x.factors + i);
      for (first += 16; first >= blocks;) first -= blocks;
    }
    std::int64_t i = 0;
    for (; i + 8 <= rows; i += 8) SumRows<8>(x, i * blocks, blocks, p.sums + r + i);
    for (; i < rows; ++i) SumRows<1>(x, i * blocks, blocks, p.sums + r + i);
  }
}
#endif

// Writes the sums of all rows of x, which stand one behind another from `x` on.
void MultiplyPanel(const PanelProduct& p, const std::uint32_t* x) {
  const auto& format = kernels::block_quantized::format_of(p.format);
  const std::int64_t x_row = RoundedRow::size(p.k);
  const RoundedRow all = RoundedRow::at(const_cast<std::uint32_t*>(x), p.k);
#if HWY_TARGET <= HWY_AVX3_DL && defined(__x86_64__)
  if (p.rows == 1 && RowsInPlace(p.k / 32) > 0) {
    if (kMultipliesInPlace<FormatId::q8_0> && p.format == FormatId::q8_0)
      return MultiplyInPlace<FormatId::q8_0>(p, all);
    if (kMultipliesInPlace<FormatId::q4_0> && p.format == FormatId::q4_0)
      return MultiplyInPlace<FormatId::q4_0>(p, all);
  }
#endif
  const PanelTile tile = TileAt(p.scratch);
  const RowsFunction multiply = RowsOf(format);
  std::fill_n(p.sums, p.rows * kPanelRows, 0.0f);
  for (std::int64_t column = 0; column < p.k; column += kTileColumns) {
    const std::int64_t columns = std::min(kTileColumns, p.k - column), groups = columns / format.group;
    UnpackTile(p, column, columns, tile);
    const std::int64_t x_words = column / 4 * (HoldsBytes(RunOf(format)) ? 1 : 2);
    multiply(p.rows, groups, tile,
             {all.words + x_words, all.scales + column / 32, all.sums + column / 32,
              all.corrections + column / format.group},
             x_row, p.sums);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Int8Shape);
HWY_EXPORT(Prefetch);
HWY_EXPORT(RoundRow);
HWY_EXPORT(MultiplyPanel);

std::int64_t block_panel_rows() { return HWY_DYNAMIC_DISPATCH(Int8Shape)().rows; }

void run_block_quantized_round(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<BlockWork>(args.constants);
  const auto& format = work.block_format();
  RowsIn in(args, 0, work.float_type());
  const auto round_row = HWY_DYNAMIC_DISPATCH(RoundRow);
  for (std::int64_t r = begin; r < end; ++r)
    round_row(in.row(r * work.k, work.k), work.k, format,
              RoundedRow::at(args.at<std::uint32_t>(1) + r * RoundedRow::size(work.k), work.k));
}

void run_block_quantized_int8(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<BlockWork>(args.constants);
  const auto* x = args.at<const std::uint32_t>(0);
  const auto multiply = HWY_DYNAMIC_DISPATCH(MultiplyPanel);
  run_panels(args, work, HWY_DYNAMIC_DISPATCH(Int8Shape)(), begin, end, HWY_DYNAMIC_DISPATCH(Prefetch),
             [&](const PanelProduct& p) { multiply(p, x + p.first * RoundedRow::size(work.k)); });
}

}  // namespace meshloom::backends::cpu
#endif
