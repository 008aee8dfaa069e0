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

// exp(x) to 2 ulp. Below -87.3 the result is 0 (as for -infinity), above 88.3 infinity; NaN stays NaN.
// exp(x) = 2^n exp(r), n the integer nearest x / ln 2; the polynomial is a Chebyshev fit on |r| <= ln(2)/2.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V VectorExp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V low = hn::Set(d, -87.3f), high = hn::Set(d, 88.3f);
  const V clamped = hn::Min(hn::Max(x, low), high);
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504089f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 0.001394110843f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008375126398f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416663529f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666641551f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, hn::Mul(r, r), r);
  p = hn::Add(p, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  V result = hn::Mul(p, hn::BitCast(d, exponent));
  result = hn::IfThenZeroElse(hn::Lt(x, low), result);
  // also lets NaN through: it is not <= high
  return hn::IfThenElse(hn::Le(x, high), result, hn::Mul(x, hn::Set(d, HUGE_VALF)));
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
