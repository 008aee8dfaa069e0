// Products of weights in blocks with activations of 8 bits. A panel of weights is unpacked into the cache, some columns at a time, and
// multiplied by all rows of x. There is one order of sums whatever the number of rows: groups in order of k, each an exact integer that
// is scaled and added with one rounding.
#include "backends/cpu/kernels/block_quantized/block_quantized_int8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/cast.h"
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
constexpr std::int64_t kXWords = kMultipliesBytes ? 1 : 2;  // of four columns

std::int64_t PanelRows() { return kPanelRows; }

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

void RoundRow(const float* x, std::int64_t k, std::int64_t group, std::int32_t offset, const RoundedRow& to) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  HWY_ALIGN std::int32_t codes[32];
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
          hn::Store(code, di, codes + i);
          sum = hn::Add(sum, code);
        }
        sums[half] = hn::GetLane(hn::SumOfLanes(di, sum));
      }
    } else {
      std::fill_n(codes, 32, 0);
    }
    to.scales[block] = scale;
    to.sums[block] = scale * static_cast<float>(sums[0] + sums[1]);
    if (group == 32) {
      to.corrections[block] = -offset * (sums[0] + sums[1]);
    } else {
      to.corrections[2 * block] = -offset * sums[0];
      to.corrections[2 * block + 1] = -offset * sums[1];
    }
    std::uint32_t* words = to.words + block * 8 * kXWords;
    for (int w = 0; w < 8; ++w) {
      const auto code = [&](int i, std::uint32_t mask) { return static_cast<std::uint32_t>(codes[4 * w + i]) & mask; };
      if constexpr (kMultipliesBytes) {
        words[w] = code(0, 255) | code(1, 255) << 8 | code(2, 255) << 16 | code(3, 255) << 24;
      } else {
        words[2 * w] = code(0, 65535) | code(2, 65535) << 16;
        words[2 * w + 1] = code(1, 65535) | code(3, 65535) << 16;
      }
    }
  }
}

// --- products ----------------------------------------------------------------------------------------------

// sum + the products of four codes of W and four columns of x in every lane.
HWY_INLINE Sums MultiplyAddWord([[maybe_unused]] DSums d, Words codes, const std::uint32_t* x, Sums sum) {
  const DWords dw;
  if constexpr (kMultipliesBytes) {
#if HWY_TARGET <= HWY_AVX3_DL && defined(__x86_64__)
    return MultiplyAddBytes(hn::BitCast(d, codes), hn::BitCast(d, hn::Set(dw, *x)), sum);
#endif
  }
  const Words even = Bits<0>(codes, 0x00ff00ffu), odd = Bits<8>(codes, 0x00ff00ffu);
  sum = MultiplyAddPairs(d, hn::BitCast(d, even), hn::BitCast(d, hn::Set(dw, x[0])), sum);
  return MultiplyAddPairs(d, hn::BitCast(d, odd), hn::BitCast(d, hn::Set(dw, x[1])), sum);
}

// Adds to sums (ROWS, kPanelRows) the products of `groups` groups of a panel's tile. x: the first column's place in the first row, whose
// parts are each x_row words from those of the next.
template <int ROWS, int GROUP, bool MINIMUM>
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
#pragma GCC unroll 8
    for (int w = 0; w < kWords; ++w, codes += kPanelRows) {
      const Words c0 = hn::Load(DWords(), codes), c1 = hn::Load(DWords(), codes + kVectorRows);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; ++i) {
        const std::uint32_t* word = x.words + i * x_row + (g * kWords + w) * kXWords;
        a[i] = MultiplyAddWord(d, c0, word, a[i]);
        b[i] = MultiplyAddWord(d, c1, word, b[i]);
      }
    }
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

template <int GROUP, bool MINIMUM>
void MultiplyRows(std::int64_t rows, std::int64_t groups, const PanelTile& tile, RoundedRow x,
                  std::int64_t x_row, float* out) {
  static constexpr auto kTable = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array{+[](std::int64_t n, const PanelTile& t, const RoundedRow& from, std::int64_t row, float* to)
                          HWY_ATTR { MultiplyTile<I + 1, GROUP, MINIMUM>(n, t, from, row, to); }...};
  }
  (std::make_integer_sequence<int, kRows>());
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t count = std::min<std::int64_t>(kRows, rows - i), step = kRows * x_row;
    kTable[static_cast<std::size_t>(count - 1)](groups, tile, x, x_row, out + i * kPanelRows);
    x = {x.words + step, x.scales + step, x.sums + step, x.corrections + step};
  }
}

constexpr std::int64_t kTileColumns = 256;  // unpacked at a time: whole blocks of every format

void Prefetch(const std::uint8_t* from, std::int64_t bytes) { PrefetchRun(from, bytes); }

// The sums (rows, kPanelRows) of a panel of W, whose rows are `row` bytes apart. ahead: the next panel, or null. `unpacked`: room for a
// tile.
void MultiplyPanel(FormatId id, std::int64_t k, const std::uint8_t* panel, std::int64_t row,
                   const std::uint8_t* ahead, std::int64_t rows, const std::uint32_t* x, float* unpacked,
                   float* out) {
  const auto& format = kernels::block_quantized::format_of(id);
  const std::int64_t x_row = RoundedRow::size(k);
  const RoundedRow all = RoundedRow::at(const_cast<std::uint32_t*>(x), k);
  const PanelTile tile{reinterpret_cast<std::uint32_t*>(unpacked), unpacked + kTileColumns / 4 * kPanelRows,
                       unpacked + (kTileColumns / 4 + kTileColumns / 16) * kPanelRows};
  std::fill_n(out, rows * kPanelRows, 0.0f);
  for (std::int64_t column = 0; column < k; column += kTileColumns) {
    const std::int64_t columns = std::min(kTileColumns, k - column), groups = columns / format.group;
    const std::int64_t at_byte = column / format.elements * format.bytes;
    UnpackPanel(id, panel + at_byte, row, columns / format.elements,
                ahead == nullptr ? nullptr : ahead + at_byte * kPanelRows, tile);
    const RoundedRow at{all.words + column / 4 * kXWords, all.scales + column / 32, all.sums + column / 32,
                        all.corrections + column / format.group};
    if (format.group == 16)
      MultiplyRows<16, false>(rows, groups, tile, at, x_row, out);
    else if (format.has_minimum)
      MultiplyRows<32, true>(rows, groups, tile, at, x_row, out);
    else
      MultiplyRows<32, false>(rows, groups, tile, at, x_row, out);
  }
}

std::int64_t UnpackedFloats() { return (kTileColumns / 4 + 2 * (kTileColumns / 16)) * kPanelRows; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(PanelRows);
HWY_EXPORT(RoundRow);
HWY_EXPORT(MultiplyPanel);
HWY_EXPORT(Prefetch);
HWY_EXPORT(UnpackedFloats);

std::int64_t block_panel_rows() { return HWY_DYNAMIC_DISPATCH(PanelRows)(); }

void run_block_quantized_round(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<BlockWork>(args.constants);
  const auto& format = work.block_format();
  RowsIn in(args, 0, static_cast<hal::DType>(work.dtype));
  for (std::int64_t r = begin; r < end; ++r)
    HWY_DYNAMIC_DISPATCH(RoundRow)
    (in.row(r * work.k, work.k), work.k, format.group, format.offset,
     RoundedRow::at(args.at<std::uint32_t>(1) + r * RoundedRow::size(work.k), work.k));
}

void run_block_quantized_int8(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<BlockWork>(args.constants);
  const auto dtype = static_cast<hal::DType>(work.dtype);
  const std::int64_t row = work.row_bytes(), n = work.n, panel_rows = block_panel_rows(),
                     panels = ceil_div(n, panel_rows);
  const bool narrows = dtype != hal::DType::f32;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t first = item / panels * work.tile_m, column = item % panels * panel_rows,
                       rows = std::min<std::int64_t>(work.tile_m, work.m - first),
                       width = std::min(panel_rows, n - column);
    const bool whole = width == panel_rows;
    const auto [unpacked, sums, tail] =
        thread_scratch({HWY_DYNAMIC_DISPATCH(UnpackedFloats)(), rows * panel_rows,
                        whole ? 0 : ceil_div(panel_rows * row, std::int64_t{4})});
    const std::uint8_t* panel = args.at<const std::uint8_t>(1) + column * row;
    if (!whole) {  // a panel of rows of which some do not exist
      auto* copy = reinterpret_cast<std::uint8_t*>(tail);
      std::fill(std::copy_n(panel, width * row, copy), copy + panel_rows * row, std::uint8_t{0});
      panel = copy;
    }
    if (item == begin) HWY_DYNAMIC_DISPATCH(Prefetch)(panel, width * row);
    const bool follows = item + 1 < end && column + 2 * panel_rows <= n;
    const std::uint8_t* next =
        follows ? args.at<const std::uint8_t>(1) + (column + panel_rows) * row : nullptr;
    HWY_DYNAMIC_DISPATCH(MultiplyPanel)
    (work.block_format().id, work.k, panel, row, next, rows,
     args.at<const std::uint32_t>(0) + first * RoundedRow::size(work.k), unpacked, sums);
    const float* bias = work.has_bias ? args.at<const float>(2) + column : nullptr;
    for (std::int64_t i = 0; i < rows; ++i) {
      float* from = sums + i * panel_rows;
      if (bias != nullptr)
        for (std::int64_t j = 0; j < width; ++j) from[j] += bias[j];
      const std::int64_t at = (first + i) * n + column;
      if (narrows)
        narrow(from, width, dtype, args.at<std::byte>(3) + at * static_cast<std::int64_t>(hal::size_of(dtype)));
      else
        std::copy_n(from, width, args.at(3) + at);
    }
  }
}

}  // namespace meshloom::backends::cpu
#endif
