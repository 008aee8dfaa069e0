// Vector functions in f32, compiled once per instruction set. To be included after hwy/highway.h, inside no
// namespace; the guard follows Highway's convention for files that foreach_target.h reads several times.
#if defined(MESHLOOM_BACKENDS_CPU_KERNELS_MATMUL_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_BACKENDS_CPU_KERNELS_MATMUL_MATH_INL_H_
#undef MESHLOOM_BACKENDS_CPU_KERNELS_MATMUL_MATH_INL_H_
#else
#define MESHLOOM_BACKENDS_CPU_KERNELS_MATMUL_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {

// exp(x) to 2 ulp for x <= 88; NaN stays NaN. Below -86 the result stops falling at 4e-38: as good as 0
// beside any other term. exp(x) = 2^n exp(r), n the integer nearest x / ln 2; the polynomial is a Chebyshev
// fit on |r| <= ln(2)/2.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V VectorExpBelow88(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V round = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: adding it leaves the integer in the low bits
  const V clamped = hn::Max(hn::Set(d, -86.0f), x);  // in this order NaN passes on x86
  const V shifted = hn::MulAdd(clamped, hn::Set(d, 1.44269504089f), round);
  const V n = hn::Sub(shifted, round);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 0.001394110843f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008375126398f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416663529f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666641551f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, hn::Mul(r, r), r);
  p = hn::Add(p, hn::Set(d, 1.0f));
  // times 2^n: n added to the exponent
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// The same for all x; from 88 on the result stays at 1.6e38.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V VectorExp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  return VectorExpBelow88(d, hn::Min(hn::Set(d, 88.0f), x));
}

// 1 / (1 + exp(-x))
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V VectorSigmoid(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, VectorExp(d, hn::Neg(x))));
}

// erfc(z) for z >= 0 to about 1e-6 relative: t exp(-z^2 + P(t)) with t = 1 / (1 + z/2); P is a Chebyshev fit
// of log(erfc(z) / t) + z^2.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V VectorErfc(D d, V z) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(z, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
  V p = hn::Set(d, 0.08193385055f);
  p = hn::MulAdd(p, t, hn::Set(d, -0.3253658273f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.2857403013f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.5179641855f));
  p = hn::MulAdd(p, t, hn::Set(d, -1.139573675f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.5998793975f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.1841167486f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.4363836135f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.9922513637f));
  p = hn::MulAdd(p, t, hn::Set(d, -1.265096444f));
  return hn::Mul(t, VectorExp(d, hn::NegMulAdd(z, z, p)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#endif
