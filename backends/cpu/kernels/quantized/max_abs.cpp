#include "backends/cpu/kernels/quantized/max_abs.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/quantized/max_abs.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float MaxAbs(const float* x, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // The bits of magnitudes, as integers, are in order; those of NaN are above all others.
  const hn::RebindToSigned<decltype(d)> di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  auto max = hn::Zero(di);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    max = hn::Max(max, hn::And(hn::BitCast(di, hn::LoadU(d, x + i)), magnitude));
  std::int32_t bits = hn::GetLane(hn::MaxOfLanes(di, max));
  for (; i < count; ++i) {
    std::int32_t one;
    std::memcpy(&one, x + i, sizeof one);
    bits = std::max(bits, one & 0x7fffffff);
  }
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(MaxAbs);

float max_abs(const float* x, std::int64_t count) { return HWY_DYNAMIC_DISPATCH(MaxAbs)(x, count); }

}  // namespace meshloom::backends::cpu
#endif
