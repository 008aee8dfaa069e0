// Panels of weights in blocks: the codes of rows side by side, so that a vector holds one word, four codes that are neighbours along
// k, of each of its rows. Products of a panel need no sums along lanes, and every element is summed in order of k.
// clang-format off: the guard toggles by target
#if defined(MESHLOOM_BACKENDS_CPU_KERNELS_BLOCK_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_BACKENDS_CPU_KERNELS_BLOCK_PANEL_INL_H_
#undef MESHLOOM_BACKENDS_CPU_KERNELS_BLOCK_PANEL_INL_H_
#else
#define MESHLOOM_BACKENDS_CPU_KERNELS_BLOCK_PANEL_INL_H_
#endif
// clang-format on

#include <cstdint>
#include <cstring>
#include <utility>

#include "backends/cpu/kernels/block_quantized/block_panels.h"
#include "hwy/highway.h"
#include "kernels/block_quantized/formats.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::block_quantized::FormatId;

using DWords = hn::CappedTag<std::uint32_t, 16>;
using Words = hn::Vec<DWords>;
using DFloats = hn::Rebind<float, DWords>;
using Floats = hn::Vec<DFloats>;
constexpr std::int64_t kVectorRows = hn::MaxLanes(DWords());
constexpr std::int64_t kPanelRows = 2 * kVectorRows;

// A run of columns of a panel: word w of row r at words[w * kPanelRows + r]; scales and minimums likewise, by group.
struct PanelTile {
  std::uint32_t* words;
  float *scales, *minimums;
};

#if HWY_TARGET != HWY_SCALAR
// Rows r, r + 4, r + 8, ... in the 128-bit blocks of a vector.
template <std::int64_t LANES, class F>
HWY_INLINE hn::Vec<hn::CappedTag<std::uint32_t, LANES>> RowsFrom(const F& load, std::int64_t r) {
  if constexpr (LANES == 4)
    return load(r);
  else
    return hn::Combine(hn::CappedTag<std::uint32_t, LANES>(), RowsFrom<LANES / 2>(load, r + LANES / 2),
                       RowsFrom<LANES / 2>(load, r));
}
#endif

// Four neighbouring words of each of a vector's rows, which are `row` bytes apart: 16 bytes of a row are read.
struct FourWords {
  Words w[4];
};
HWY_INLINE FourWords LoadWords(const std::uint8_t* from, [[maybe_unused]] std::int64_t row) {
  const DWords d;
  FourWords out;
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) {
    std::uint32_t word;
    std::memcpy(&word, from + 4 * i, 4);
    out.w[i] = hn::Set(d, word);
  }
#else
  const hn::Full128<std::uint32_t> d4;
  const auto load = [&](std::int64_t r) HWY_ATTR {
    return hn::LoadU(d4, reinterpret_cast<const std::uint32_t*>(from + r * row));
  };
  const Words a = RowsFrom<kVectorRows>(load, 0), b = RowsFrom<kVectorRows>(load, 1),
              c = RowsFrom<kVectorRows>(load, 2), e = RowsFrom<kVectorRows>(load, 3);
  const Words ac0 = hn::InterleaveLower(d, a, c), be0 = hn::InterleaveLower(d, b, e),
              ac1 = hn::InterleaveUpper(d, a, c), be1 = hn::InterleaveUpper(d, b, e);
  out.w[0] = hn::InterleaveLower(d, ac0, be0);
  out.w[1] = hn::InterleaveUpper(d, ac0, be0);
  out.w[2] = hn::InterleaveLower(d, ac1, be1);
  out.w[3] = hn::InterleaveUpper(d, ac1, be1);
#endif
  return out;
}

template <int SHIFT>
HWY_INLINE Words Bits(Words v, std::uint32_t mask) {
  const DWords d;
  if constexpr (SHIFT == 0)
    return hn::And(v, hn::Set(d, mask));
  else
    return hn::And(hn::ShiftRight<SHIFT>(v), hn::Set(d, mask));
}

// The f16 numbers in the low half of every lane.
HWY_INLINE Floats HalfToFloat(Words v) {
  const DFloats df;
  const hn::Rebind<std::uint16_t, DWords> d16;
  const hn::Rebind<hwy::float16_t, DFloats> dh;
  return hn::PromoteTo(df, hn::BitCast(dh, hn::TruncateTo(d16, v)));
}

HWY_INLINE Floats ToFloat(Words v) {
  return hn::ConvertTo(DFloats(), hn::BitCast(hn::RebindToSigned<DWords>(), v));
}

HWY_INLINE void PutWord(Words v, std::uint32_t* words, int w) {
  hn::Store(v, DWords(), words + w * kPanelRows);
}
HWY_INLINE void PutFloat(Floats v, float* to, int g) { hn::Store(v, DFloats(), to + g * kPanelRows); }

// Calls f.operator()<0>(), f.operator()<1>(), ...
template <int N, class F>
HWY_INLINE void Unrolled(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) HWY_ATTR { (f.template operator()<I>(), ...); }
  (std::make_integer_sequence<int, N>());
}

// Bits 4 w to 4 w + 3 as bit 4 of the bytes of a word.
template <int WORD>
HWY_INLINE Words FifthBits(Words bits) {
  const DWords d;
  const Words spread = hn::Mul(Bits<4 * WORD>(bits, 15), hn::Set(d, 0x00204081u));
  return hn::ShiftLeft<4>(hn::And(spread, hn::Set(d, 0x01010101u)));
}

// One block of each of a vector's rows.
template <FormatId ID>
HWY_INLINE void UnpackVector(const std::uint8_t* at, std::int64_t row, const PanelTile& to) {
  const DWords d;
  constexpr std::uint32_t kNibbles = 0x0f0f0f0fu;
  if constexpr (ID == FormatId::q8_0) {
    PutFloat(HalfToFloat(LoadWords(at, row).w[0]), to.scales, 0);
    const Words flip = hn::Set(d, 0x80808080u);
    Unrolled<2>([&]<int HALF>() HWY_ATTR {
      const FourWords q = LoadWords(at + 2 + 16 * HALF, row);
      for (int w = 0; w < 4; ++w) PutWord(hn::Xor(q.w[w], flip), to.words, 4 * HALF + w);
    });
  } else if constexpr (ID == FormatId::q4_0 || ID == FormatId::q4_1 || ID == FormatId::q5_0 ||
                       ID == FormatId::q5_1) {
    constexpr bool kMinimum = ID == FormatId::q4_1 || ID == FormatId::q5_1;
    constexpr bool kWide = ID == FormatId::q5_0 || ID == FormatId::q5_1;
    constexpr std::int64_t kRest = kMinimum ? 4 : 2;
    const FourWords head = LoadWords(at, row);
    PutFloat(HalfToFloat(head.w[0]), to.scales, 0);
    if constexpr (kMinimum) PutFloat(HalfToFloat(hn::ShiftRight<16>(head.w[0])), to.minimums, 0);
    Words fifth = hn::Zero(d);
    if constexpr (kWide)
      fifth = kMinimum ? head.w[1] : hn::Or(hn::ShiftRight<16>(head.w[0]), hn::ShiftLeft<16>(head.w[1]));
    const FourWords q = LoadWords(at + kRest + (kWide ? 4 : 0), row);
    Unrolled<4>([&]<int W>() HWY_ATTR {
      Words low = Bits<0>(q.w[W], kNibbles), high = Bits<4>(q.w[W], kNibbles);
      if constexpr (kWide) {
        low = hn::Or(low, FifthBits<W>(fifth));
        high = hn::Or(high, FifthBits<W + 4>(fifth));
      }
      PutWord(low, to.words, W);
      PutWord(high, to.words, W + 4);
    });
  } else if constexpr (ID == FormatId::q4_k || ID == FormatId::q5_k) {
    constexpr bool kWide = ID == FormatId::q5_k;
    const FourWords head = LoadWords(at, row);
    const Floats scale = HalfToFloat(head.w[0]), minimum = HalfToFloat(hn::ShiftRight<16>(head.w[0]));
    const Words s0 = head.w[1], s1 = head.w[2], s2 = head.w[3];
    Unrolled<4>([&]<int J>() HWY_ATTR {
      PutFloat(hn::Mul(scale, ToFloat(Bits<8 * J>(s0, 63))), to.scales, J);
      PutFloat(hn::Neg(hn::Mul(minimum, ToFloat(Bits<8 * J>(s1, 63)))), to.minimums, J);
      const Words upper_scale = hn::ShiftLeft<4>(Bits<8 * J + 6>(s0, 3)),
                  upper_minimum = hn::ShiftLeft<4>(Bits<8 * J + 6>(s1, 3));
      PutFloat(hn::Mul(scale, ToFloat(hn::Or(Bits<8 * J>(s2, 15), upper_scale))), to.scales, J + 4);
      PutFloat(hn::Neg(hn::Mul(minimum, ToFloat(hn::Or(Bits<8 * J + 4>(s2, 15), upper_minimum)))),
               to.minimums, J + 4);
    });
    FourWords fifth[2];
    if constexpr (kWide) {
      fifth[0] = LoadWords(at + 16, row);
      fifth[1] = LoadWords(at + 32, row);
    }
    Unrolled<4>([&]<int PAIR>() HWY_ATTR {  // of groups
      for (int half = 0; half < 2; ++half) {
        const FourWords q = LoadWords(at + (kWide ? 48 : 16) + 32 * PAIR + 16 * half, row);
        for (int w = 0; w < 4; ++w) {
          Words low = Bits<0>(q.w[w], kNibbles), high = Bits<4>(q.w[w], kNibbles);
          if constexpr (kWide) {
            low = hn::Or(low, hn::ShiftLeft<4>(Bits<2 * PAIR>(fifth[half].w[w], 0x01010101u)));
            high = hn::Or(high, hn::ShiftLeft<4>(Bits<2 * PAIR + 1>(fifth[half].w[w], 0x01010101u)));
          }
          PutWord(low, to.words, 16 * PAIR + 4 * half + w);
          PutWord(high, to.words, 16 * PAIR + 8 + 4 * half + w);
        }
      }
    });
  } else {
    static_assert(ID == FormatId::q6_k);
    const Floats scale = HalfToFloat(hn::ShiftRight<16>(LoadWords(at + 194, row).w[3]));
    const FourWords factors = LoadWords(at + 192, row);
    const hn::RebindToSigned<DWords> di;
    for (int i = 0; i < 4; ++i)
      Unrolled<4>([&]<int J>() HWY_ATTR {
        const auto factor = hn::ShiftRight<24>(hn::BitCast(di, hn::ShiftLeft<24 - 8 * J>(factors.w[i])));
        PutFloat(hn::Mul(scale, hn::ConvertTo(DFloats(), factor)), to.scales, 4 * i + J);
      });
    for (int half = 0; half < 2; ++half)
      for (int four = 0; four < 2; ++four) {
        const FourWords upper = LoadWords(at + 128 + 32 * half + 16 * four, row);
        Unrolled<2>([&]<int RUN>() HWY_ATTR {  // of 32 bytes, whose low nibbles come before all high ones
          const FourWords q = LoadWords(at + 64 * half + 32 * RUN + 16 * four, row);
          for (int w = 0; w < 4; ++w) {
            const int word = 32 * half + 8 * RUN + 4 * four + w;
            PutWord(
                hn::Or(Bits<0>(q.w[w], kNibbles), hn::ShiftLeft<4>(Bits<2 * RUN>(upper.w[w], 0x03030303u))),
                to.words, word);
            PutWord(hn::Or(Bits<4>(q.w[w], kNibbles),
                           hn::ShiftLeft<4>(Bits<2 * RUN + 4>(upper.w[w], 0x03030303u))),
                    to.words, word + 16);
          }
        });
      }
  }
}

// Asks for the cache lines that hold `bytes` bytes, in the L2 cache: the L1 cache has no room for a panel beside the unpacked one.
HWY_INLINE void PrefetchRun(const std::uint8_t* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

template <FormatId ID>
void UnpackBlocks(const std::uint8_t* from, std::int64_t row, std::int64_t blocks, const std::uint8_t* ahead,
                  PanelTile to) {
  const auto& format = kernels::block_quantized::format_of(ID);
  const std::int64_t bytes = format.bytes, words = format.elements / 4,
                     groups = format.elements / format.group;
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::int64_t r = 0; r < kPanelRows; r += kVectorRows) {
      if (ahead != nullptr) PrefetchRun(ahead + (b * kPanelRows + r) * bytes, kVectorRows * bytes);
      UnpackVector<ID>(from + r * row, row, {to.words + r, to.scales + r, to.minimums + r});
    }
    from += bytes;
    to.words += words * kPanelRows;
    to.scales += groups * kPanelRows;
    to.minimums += groups * kPanelRows;
  }
}

// `blocks` blocks of kPanelRows rows, which are `row` bytes apart. Meanwhile as many bytes from `ahead` on are brought into the cache,
// unless it is null: a processor does not see for itself that so many short runs follow one another.
void UnpackPanel(FormatId id, const std::uint8_t* from, std::int64_t row, std::int64_t blocks,
                 const std::uint8_t* ahead, const PanelTile& to) {
  switch (id) {
    case FormatId::q8_0:
      return UnpackBlocks<FormatId::q8_0>(from, row, blocks, ahead, to);
    case FormatId::q4_0:
      return UnpackBlocks<FormatId::q4_0>(from, row, blocks, ahead, to);
    case FormatId::q4_1:
      return UnpackBlocks<FormatId::q4_1>(from, row, blocks, ahead, to);
    case FormatId::q5_0:
      return UnpackBlocks<FormatId::q5_0>(from, row, blocks, ahead, to);
    case FormatId::q5_1:
      return UnpackBlocks<FormatId::q5_1>(from, row, blocks, ahead, to);
    case FormatId::q4_k:
      return UnpackBlocks<FormatId::q4_k>(from, row, blocks, ahead, to);
    case FormatId::q5_k:
      return UnpackBlocks<FormatId::q5_k>(from, row, blocks, ahead, to);
    case FormatId::q6_k:
      return UnpackBlocks<FormatId::q6_k>(from, row, blocks, ahead, to);
  }
}

void Prefetch(const std::uint8_t* from, std::int64_t bytes) { PrefetchRun(from, bytes); }

constexpr std::int64_t kTileColumns = 256;  // unpacked at a time: whole blocks of every format

PanelShape Shape() { return {kPanelRows, (kTileColumns / 4 + 2 * (kTileColumns / 16)) * kPanelRows}; }
// In scratch of that size.
PanelTile TileAt(float* scratch) {
  return {reinterpret_cast<std::uint32_t*>(scratch), scratch + kTileColumns / 4 * kPanelRows,
          scratch + (kTileColumns / 4 + kTileColumns / 16) * kPanelRows};
}

// Columns [column, column + columns) of a panel.
void UnpackTile(const PanelProduct& p, std::int64_t column, std::int64_t columns, const PanelTile& tile) {
  const auto& format = kernels::block_quantized::format_of(p.format);
  const std::int64_t at = column / format.elements * format.bytes;
  UnpackPanel(p.format, p.panel + at, p.row, columns / format.elements,
              p.ahead == nullptr ? nullptr : p.ahead + at * kPanelRows, tile);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
