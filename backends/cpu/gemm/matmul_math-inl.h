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

// exp(x) = 2^n 2^r with n the integer nearest x / ln 2. The polynomial of degree 5 is a minimax fit of 2^r on
// |r| <= 1/2 that is 1 at 0. With COMPENSATE the low part of 1 / ln 2 is added and the result is accurate to
// 2 ulp; without, `r` has an error of 1.3e-8 |x|. For x <= 88; NaN stays NaN. Below -86 the result stays at
// 4e-38, which is negligible beside any other term.
template <bool COMPENSATE, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpBelow88(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V round = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: adding it leaves the integer in the low bits
  const V clamped = hn::Max(hn::Set(d, -86.0f), x);  // in this order NaN passes on x86
  const V shifted = hn::MulAdd(clamped, hn::Set(d, 1.44269504f), round);
  V r = hn::MulSub(clamped, hn::Set(d, 1.44269504f), hn::Sub(shifted, round));
  if constexpr (COMPENSATE) r = hn::MulAdd(clamped, hn::Set(d, 1.92596299e-8f), r);
  V p = hn::Set(d, 0.001326473303f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.009671514666f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550733748f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.2402224205f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931469776f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // times 2^n: n added to the exponent
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// exp(x) for x <= 0, as a softmax weight: the absolute error is at most 1.3e-7.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V VectorSoftmaxExp(D d, V x) {
  return ExpBelow88<false>(d, x);
}

// exp(x) to 2 ulp; from 88 on the result stays at 1.6e38.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V VectorExp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  return ExpBelow88<true>(d, hn::Min(hn::Set(d, 88.0f), x));
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
