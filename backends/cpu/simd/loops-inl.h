// Loops over rows of floats of any length: whole vectors, then single elements by the same code. The order of a sum
// depends on the length alone.
// clang-format off: the guard toggles by target
#if defined(MESHLOOM_BACKENDS_CPU_KERNELS_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_BACKENDS_CPU_KERNELS_LOOPS_INL_H_
#undef MESHLOOM_BACKENDS_CPU_KERNELS_LOOPS_INL_H_
#else
#define MESHLOOM_BACKENDS_CPU_KERNELS_LOOPS_INL_H_
#endif
// clang-format on

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Single = hn::CappedTag<float, 1>;

// Calls f(d, i) for elements [i, i + Lanes(d)).
template <class F>
HWY_INLINE void Over(std::int64_t n, F f) {
  const Wide d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) f(d, i);
  for (; i < n; ++i) f(Single(), i);
}

// The sum of f(d, i), which returns a vector of d.
template <class F>
HWY_INLINE float SumOver(std::int64_t n, F f) {
  const Wide d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = hn::Add(a, f(d, i));
    b = hn::Add(b, f(d, i + step));
    c = hn::Add(c, f(d, i + 2 * step));
    e = hn::Add(e, f(d, i + 3 * step));
  }
  for (; i + step <= n; i += step) a = hn::Add(a, f(d, i));
  const Single one;
  auto tail = hn::Zero(one);
  for (; i < n; ++i) tail = hn::Add(tail, f(one, i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e)))) + hn::GetLane(tail);
}

}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#endif
