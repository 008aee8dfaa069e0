// Products of few rows with weights in blocks: panels of them are unpacked into the cache and dequantized in registers. Every element is
// the chain of multiply-adds that the packed matmul makes of it, which begins anew at its blocks of k, so that both give the same bits.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/block_quantized/block_panels.h"
#include "backends/cpu/kernels/block_quantized/block_quantized_few_rows.h"
#include "backends/cpu/kernels/cast.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/block_quantized/block_quantized_few_rows.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/kernels/block_quantized/block_panel-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {

// Rows of x in registers.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kRows = 6;
#else
constexpr int kRows = 4;
#endif

// Adds to sums (ROWS, kPanelRows) the products of words [begin, end) of a tile. x: the tile's first column in the first of ROWS rows, k
// floats apart.
template <int ROWS, bool MINIMUM>
HWY_INLINE void MultiplyWords(std::int64_t begin, std::int64_t end, const PanelTile& tile, std::int64_t group,
                              float offset, const float* HWY_RESTRICT x, std::int64_t k,
                              float* HWY_RESTRICT out) {
  const DFloats df;
  Floats left[ROWS], right[ROWS];
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
    left[i] = hn::Load(df, out + i * kPanelRows);
    right[i] = hn::Load(df, out + i * kPanelRows + kVectorRows);
  }
  const std::int64_t group_words = group / 4;
  for (std::int64_t w = begin; w < end; ++w) {
    const Words c0 = hn::Load(DWords(), tile.words + w * kPanelRows),
                c1 = hn::Load(DWords(), tile.words + w * kPanelRows + kVectorRows);
    const std::int64_t at = w / group_words * kPanelRows;
    const Floats s0 = hn::Load(df, tile.scales + at), s1 = hn::Load(df, tile.scales + at + kVectorRows);
    Floats m0 = hn::Zero(df), m1 = m0;
    if constexpr (MINIMUM) {
      m0 = hn::Load(df, tile.minimums + at);
      m1 = hn::Load(df, tile.minimums + at + kVectorRows);
    }
    Unrolled<4>([&]<int J>() HWY_ATTR {
      const auto value = [&](Words codes, Floats scale, Floats minimum) HWY_ATTR {
        const Floats code = ToFloat(Bits<8 * J>(codes, 255));
        return MINIMUM ? hn::MulAdd(scale, code, minimum)
                       : hn::Mul(scale, hn::Sub(code, hn::Set(df, offset)));
      };
      const Floats v0 = value(c0, s0, m0), v1 = value(c1, s1, m1);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; ++i) {
        const Floats factor = hn::Set(df, x[i * k + 4 * w + J]);
        left[i] = hn::MulAdd(factor, v0, left[i]);
        right[i] = hn::MulAdd(factor, v1, right[i]);
      }
    });
  }
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
    hn::Store(left[i], df, out + i * kPanelRows);
    hn::Store(right[i], df, out + i * kPanelRows + kVectorRows);
  }
}

template <bool MINIMUM>
void MultiplyRows(const PanelProduct& p, std::int64_t begin, std::int64_t end, const PanelTile& tile,
                  const float* x, float* chains) {
  const auto& format = kernels::block_quantized::format_of(p.format);
  const auto offset = static_cast<float>(format.offset);
  static constexpr auto kTable = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array{+[](std::int64_t from, std::int64_t to, const PanelTile& t, std::int64_t group, float o,
                          const float* rows, std::int64_t k, float* out) HWY_ATTR {
      MultiplyWords<I + 1, MINIMUM>(from, to, t, group, o, rows, k, out);
    }...};
  }
  (std::make_integer_sequence<int, kRows>());
  for (std::int64_t i = 0; i < p.rows; i += kRows)
    kTable[static_cast<std::size_t>(std::min<std::int64_t>(kRows, p.rows - i) - 1)](
        begin, end, tile, format.group, offset, x + i * p.k, p.k, chains + i * kPanelRows);
}

// x: the rows of x, dense. Chains begin anew at every multiple of `depth`, itself one of four. chains: as the sums.
void MultiplyPanelFloat(const PanelProduct& p, const float* x, std::int64_t depth, float* chains) {
  const DFloats df;
  const bool has_minimum = kernels::block_quantized::format_of(p.format).has_minimum;
  const PanelTile tile = TileAt(p.scratch);
  const std::int64_t count = p.rows * kPanelRows;
  std::fill_n(chains, count, 0.0f);
  std::int64_t next = std::min(depth, p.k);  // where a chain ends
  for (std::int64_t column = 0; column < p.k; column += kTileColumns) {
    const std::int64_t last = std::min(column + kTileColumns, p.k);
    UnpackTile(p, column, last - column, tile);
    for (std::int64_t at = column; at < last;) {
      const std::int64_t stop = std::min(next, last);
      const auto multiply = has_minimum ? MultiplyRows<true> : MultiplyRows<false>;
      multiply(p, (at - column) / 4, (stop - column) / 4, tile, x + column, chains);
      at = stop;
      if (at < next) continue;
      for (std::int64_t i = 0; i < count; i += kVectorRows) {
        const Floats chain = hn::Load(df, chains + i);
        hn::Store(next <= depth ? chain : hn::Add(chain, hn::Load(df, p.sums + i)), df, p.sums + i);
        hn::Store(hn::Zero(df), df, chains + i);
      }
      next = std::min(next + depth, p.k);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Shape);
HWY_EXPORT(Prefetch);
HWY_EXPORT(MultiplyPanelFloat);

std::int64_t few_rows_panel_rows() { return HWY_DYNAMIC_DISPATCH(Shape)().rows; }

void run_block_quantized_few_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<BlockWork>(args.constants);
  const std::int64_t k = work.k, depth = packed_depth(k);
  const float* x = args.at<const float>(0);
  std::vector<float> wide;
  if (work.float_type() != hal::DType::f32) {
    wide.resize(static_cast<std::size_t>(work.m * k));
    widen(args.at<const std::byte>(0), work.float_type(), work.m * k, wide.data());
    x = wide.data();
  }
  PanelShape shape = HWY_DYNAMIC_DISPATCH(Shape)();
  const std::int64_t tile = shape.scratch;
  shape.scratch += work.tile_m * shape.rows;
  const auto multiply = HWY_DYNAMIC_DISPATCH(MultiplyPanelFloat);
  run_panels(args, work, shape, begin, end, HWY_DYNAMIC_DISPATCH(Prefetch),
             [&](const PanelProduct& p) { multiply(p, x + p.first * k, depth, p.scratch + tile); });
}

}  // namespace meshloom::backends::cpu
#endif
