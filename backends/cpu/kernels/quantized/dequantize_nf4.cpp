#include "backends/cpu/kernels/quantized/dequantize_nf4.h"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/nf4_matmul/nf4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/quantized/dequantize_nf4.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float Value(const std::uint8_t* codes, std::int64_t column) {
  const unsigned byte = codes[column / 2];
  return kernels::nf4::kLevels[column % 2 ? byte >> 4 : byte & 15u];
}

#if HWY_TARGET != HWY_SCALAR
// planes[b]: byte b of every level. Looking 16 codes up in each of the four planes gives the bytes of 16 floats.
std::array<std::array<std::uint8_t, 16>, 4> Planes() {
  std::array<std::array<std::uint8_t, 16>, 4> planes{};
  for (std::size_t code = 0; code < 16; ++code)
    for (std::size_t b = 0; b < 4; ++b)
      planes[b][code] =
          static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(kernels::nf4::kLevels[code]) >> (8 * b));
  return planes;
}
#endif

// Columns [begin, end) of a row.
void Dequantize(const Nf4Weights& w, std::int64_t begin, std::int64_t end, float* into) {
  const std::uint8_t* codes = w.codes + w.row * w.code_row;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<std::uint8_t, 16> d8;
  const hn::Repartition<std::uint16_t, decltype(d8)> d16;
  const hn::Repartition<float, decltype(d8)> df;
  static const std::array<std::array<std::uint8_t, 16>, 4> kPlanes = Planes();
  const auto p0 = hn::LoadU(d8, kPlanes[0].data()), p1 = hn::LoadU(d8, kPlanes[1].data());
  const auto p2 = hn::LoadU(d8, kPlanes[2].data()), p3 = hn::LoadU(d8, kPlanes[3].data());
  const auto low = hn::Set(d8, 15);
#endif
  for (std::int64_t i = begin; i < end;) {
    const float scale = w.scale(i / w.block);
    const std::int64_t stop = std::min(end, (i / w.block + 1) * w.block);
#if HWY_TARGET != HWY_SCALAR
    const auto factor = hn::Set(df, scale);
    if (i % 2 != 0) *into++ = Value(codes, i++) * scale;
    for (; i + 32 <= stop; i += 32) {
      const auto bytes = hn::LoadU(d8, codes + i / 2);
      const auto even = hn::And(bytes, low);
      const auto odd = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bytes))), low);
      const auto store = [&](auto sixteen) {
        const auto b0 = hn::TableLookupBytes(p0, sixteen), b1 = hn::TableLookupBytes(p1, sixteen);
        const auto b2 = hn::TableLookupBytes(p2, sixteen), b3 = hn::TableLookupBytes(p3, sixteen);
        const auto l01 = hn::BitCast(d16, hn::InterleaveLower(d8, b0, b1)),
                   l23 = hn::BitCast(d16, hn::InterleaveLower(d8, b2, b3));
        const auto u01 = hn::BitCast(d16, hn::InterleaveUpper(d8, b0, b1)),
                   u23 = hn::BitCast(d16, hn::InterleaveUpper(d8, b2, b3));
        const auto put = [&](auto bits) {
          hn::StoreU(hn::Mul(hn::BitCast(df, bits), factor), df, into);
          into += 4;
        };
        put(hn::InterleaveLower(d16, l01, l23));
        put(hn::InterleaveUpper(d16, l01, l23));
        put(hn::InterleaveLower(d16, u01, u23));
        put(hn::InterleaveUpper(d16, u01, u23));
      };
      store(hn::InterleaveLower(d8, even, odd));
      store(hn::InterleaveUpper(d8, even, odd));
    }
#endif
    for (; i < stop; ++i) *into++ = Value(codes, i) * scale;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Dequantize);

Nf4Weights nf4_weights(const std::uint8_t* codes, const void* scales, const float* steps,
                       std::int64_t columns, std::int64_t block) {
  return {codes, scales, steps, kernels::nf4::row_bytes(columns), kernels::nf4::blocks(columns, block),
          block, 0,      0};
}

void dequantize_nf4(const Nf4Weights& weights, std::int64_t count, float* into) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(weights, weights.column, weights.column + count, into);
}

}  // namespace meshloom::backends::cpu
#endif
