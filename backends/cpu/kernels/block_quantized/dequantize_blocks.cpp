#include "backends/cpu/kernels/block_quantized/dequantize_blocks.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/block_quantized/dequantize_blocks.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::block_quantized::Format;

void Dequantize(const Format& format, const std::uint8_t* from, std::int64_t blocks, float* into) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  HWY_ALIGN std::uint8_t codes[256];
  float scales[16], minimums[16];
  const auto offset = hn::Set(di, format.offset);
  for (std::int64_t b = 0; b < blocks; ++b, from += format.bytes, into += format.elements) {
    kernels::block_quantized::unpack(format, from, codes, scales, minimums);
    for (std::int64_t i = 0; i < format.elements; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const std::int64_t group = i / format.group;
      const auto code = hn::ConvertTo(d, hn::Sub(hn::PromoteTo(di, hn::LoadU(d8, codes + i)), offset));
      const auto value = hn::Mul(hn::Set(d, scales[group]), code);
      hn::StoreU(format.has_minimum ? hn::Add(value, hn::Set(d, minimums[group])) : value, d, into + i);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Dequantize);

void dequantize_blocks(const kernels::block_quantized::Format& format, const std::uint8_t* row,
                       std::int64_t begin, std::int64_t count, float* into) {
  const std::int64_t elements = format.elements, end = begin + count;
  while (begin < end) {
    const std::uint8_t* block = row + begin / elements * format.bytes;
    if (begin % elements == 0 && end - begin >= elements) {
      const std::int64_t blocks = (end - begin) / elements;
      HWY_DYNAMIC_DISPATCH(Dequantize)(format, block, blocks, into);
      begin += blocks * elements;
      into += blocks * elements;
    } else {  // part of a block
      float values[256];
      HWY_DYNAMIC_DISPATCH(Dequantize)(format, block, 1, values);
      const std::int64_t first = begin % elements, last = std::min(elements, first + end - begin);
      into = std::copy(values + first, values + last, into);
      begin += last - first;
    }
  }
}

}  // namespace meshloom::backends::cpu
#endif
