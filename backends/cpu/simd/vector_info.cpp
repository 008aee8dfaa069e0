#include "backends/cpu/simd/vector_info.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/simd/vector_info.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

int Lanes() { return static_cast<int>(hn::Lanes(hn::ScalableTag<float>())); }
std::int64_t Target() { return HWY_TARGET; }

double SpinMultiplyAdd(std::int64_t rounds) {
  const hn::ScalableTag<float> d;
  // Latency 4-5 times throughput 2 needs ten chains.
  auto a = hn::Set(d, 0.1f), b = hn::Set(d, 0.2f), c = hn::Set(d, 0.3f), e = hn::Set(d, 0.4f),
       f = hn::Set(d, 0.5f);
  auto g = hn::Set(d, 0.6f), h = hn::Set(d, 0.7f), i = hn::Set(d, 0.8f), j = hn::Set(d, 0.9f),
       k = hn::Set(d, 1.0f);
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, x, y);
    b = hn::MulAdd(b, x, y);
    c = hn::MulAdd(c, x, y);
    e = hn::MulAdd(e, x, y);
    f = hn::MulAdd(f, x, y);
    g = hn::MulAdd(g, x, y);
    h = hn::MulAdd(h, x, y);
    i = hn::MulAdd(i, x, y);
    j = hn::MulAdd(j, x, y);
    k = hn::MulAdd(k, x, y);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)),
                           hn::Add(hn::Add(f, g), hn::Add(hn::Add(h, i), hn::Add(j, k))));
  volatile float sink = hn::GetLane(sum);  // keeps the loop
  (void)sink;
  return 2.0 * 10 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

float SumStream(const float* data, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::int64_t i = 0; i + 4 * n <= count; i += 4 * n) {
    a = hn::Add(a, hn::LoadU(d, data + i));
    b = hn::Add(b, hn::LoadU(d, data + i + n));
    c = hn::Add(c, hn::LoadU(d, data + i + 2 * n));
    e = hn::Add(e, hn::LoadU(d, data + i + 3 * n));
  }
  return hn::GetLane(hn::Add(hn::Add(a, b), hn::Add(c, e)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Lanes);
HWY_EXPORT(Target);
HWY_EXPORT(SpinMultiplyAdd);
HWY_EXPORT(SumStream);

VectorInfo vector_info() {
  return {hwy::TargetName(HWY_DYNAMIC_DISPATCH(Target)()), HWY_DYNAMIC_DISPATCH(Lanes)()};
}
double run_fma_loop(std::int64_t rounds) { return HWY_DYNAMIC_DISPATCH(SpinMultiplyAdd)(rounds); }
float sum_stream(const float* data, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(SumStream)(data, count);
}

}  // namespace meshloom::backends::cpu
#endif
