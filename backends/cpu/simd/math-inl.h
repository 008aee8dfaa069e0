// Vector exp, log, tanh, sigmoid, erf, sine and cosine in f32: accurate to a few ulp over the whole range, with NaN and
// infinities as in <cmath>. The polynomials are minimax fits by the Remez algorithm of the functions and on the
// intervals named beside them. Included once per instruction set by files that use foreach_target.h.
// clang-format off: the guard toggles by target
#if defined(MESHLOOM_BACKENDS_CPU_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_BACKENDS_CPU_KERNELS_MATH_INL_H_
#undef MESHLOOM_BACKENDS_CPU_KERNELS_MATH_INL_H_
#else
#define MESHLOOM_BACKENDS_CPU_KERNELS_MATH_INL_H_
#endif
// clang-format on

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace math {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Float = hn::Vec<D>;

// c0 + c1 x + c2 x^2 + ...
template <class D, class V>
HWY_INLINE V Polynomial(D d, V, float c0) {
  return hn::Set(d, c0);
}
template <class D, class V, class... C>
HWY_INLINE V Polynomial(D d, V x, float c0, C... more) {
  return hn::MulAdd(Polynomial(d, x, more...), x, hn::Set(d, c0));
}

// 2^n for whole n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

template <class D, class V>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V clamped = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.4426950409f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f),
                      clamped);  // ln 2 in two parts, of which the first times n is exact
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // (e^r - 1 - r) / r^2 on [-ln(2)/2, ln(2)/2]
  const V p = Polynomial(d, r, 0.50000000682f, 0.16666665862f, 0.041666292988f, 0.0083334979688f,
                         0.0013944807227f, 0.00019790195874f);
  const V e = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  // Two factors, so that subnormal results and infinity are reached.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const V y = hn::Mul(hn::Mul(e, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(whole, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// exp(x) for x <= 0; 0 below -87. Cheaper than Exp, for softmax. NaN stays NaN.
template <class D, class V>
HWY_INLINE V ExpNotPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V clamped = hn::Max(x, hn::Set(d, -87.0f));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.4426950409f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  const V p = Polynomial(d, r, 0.50000000682f, 0.16666665862f, 0.041666292988f, 0.0083334979688f,
                         0.0013944807227f, 0.00019790195874f);
  const V e = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  const V y = hn::Mul(e, PowerOfTwo(d, hn::ConvertTo(di, n)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::IfThenElse(hn::IsNaN(x), x, y));
}

template <class D, class V>
HWY_INLINE V Log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto subnormal = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
  const V scaled = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 8388608.0f)), x);
  // scaled = 2^e m with m in [sqrt(1/2), sqrt(2))
  const auto bits = hn::BitCast(di, scaled);
  const auto e_int = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e_int)));
  V e = hn::ConvertTo(d, e_int);
  e = hn::Sub(e, hn::IfThenElseZero(subnormal, hn::Set(d, 23.0f)));
  const V f = hn::Sub(m, hn::Set(d, 1.0f));
  const V f2 = hn::Mul(f, f);
  // (log(1 + f) - f + f^2/2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1]
  const V p = Polynomial(d, f, 0.33333312604f, -0.25000009598f, 0.20002118643f, -0.16667995905f,
                         0.14219552732f, -0.12405588242f, 0.11888158847f, -0.11675654571f, 0.067466515234f);
  V y = hn::Mul(hn::Mul(f2, f), p);
  y = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), y);
  y = hn::NegMulAdd(f2, hn::Set(d, 0.5f), y);
  y = hn::MulAdd(e, hn::Set(d, 0.693359375f), hn::Add(y, f));
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  return hn::IfThenElse(hn::Or(hn::Lt(x, hn::Zero(d)), hn::IsNaN(x)), nan, y);
}

template <class D, class V>
HWY_INLINE V Tanh(D d, V x) {
  const V a = hn::Abs(x);
  const V y = hn::Mul(x, x);
  // (tanh(x) - x) / x^3 as a polynomial in x^2, |x| < 5/8
  const V p = Polynomial(d, y, -0.33333330803f, 0.13333206008f, -0.053946763042f, 0.021700703144f,
                         -0.0081773980995f, 0.0021429617515f);
  const V small = hn::MulAdd(hn::Mul(x, y), p, x);
  const V one = hn::Set(d, 1.0f);
  const V big = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(Exp(d, hn::Add(a, a)), one)));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), small, hn::CopySign(big, x));
}

// 1 / (1 + e^-x), computed from e^-|x| so that nothing overflows.
template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = Exp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

template <class D, class V>
HWY_INLINE V Erf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V a = hn::Abs(x);
  const V y = hn::Mul(x, x);
  // erf(x) / x as a polynomial in x^2, |x| < 1
  const V small =
      hn::Mul(x, Polynomial(d, y, 1.1283791657f, -0.37612625824f, 0.11283585148f, -0.026853811931f,
                            0.0051883276787f, -0.00080101935693f, 7.8538611801e-5f));
  // erfc(x) e^(x^2) as a polynomial in t = 1 / (1 + x/2), 1 <= x <= 4; beyond, erf rounds to 1
  const V b = hn::Min(a, hn::Set(d, 4.0f));
  const V t = hn::Div(one, hn::MulAdd(b, hn::Set(d, 0.5f), one));
  const V p = Polynomial(d, t, 0.001870553199f, 0.25927997145f, 0.39826905278f, -0.067009692108f,
                         0.63888717747f, -0.23156360204f);
  const V big = hn::NegMulAdd(ExpNotPositive(d, hn::Neg(hn::Mul(b, b))), p, one);
  const V result = hn::IfThenElse(hn::Lt(a, one), small, hn::CopySign(big, x));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// Sine and cosine of x in [-pi/4, pi/4].
template <class D, class V>
HWY_INLINE void SinCos(D d, V x, V& sine, V& cosine) {
  const V y = hn::Mul(x, x);
  // (sin(x) - x) / x^3 and (cos(x) - 1 + x^2/2) / x^4 as polynomials in x^2
  sine = hn::MulAdd(hn::Mul(x, y),
                    Polynomial(d, y, -0.16666666642f, 0.0083333293848f, -0.00019839334467f, 2.7183079351e-6f),
                    x);
  const V p = Polynomial(d, y, 0.041666646861f, -0.0013887367213f, 2.4438415538e-5f);
  cosine = hn::Add(hn::NegMulAdd(y, hn::Set(d, 0.5f), hn::Mul(hn::Mul(y, y), p)), hn::Set(d, 1.0f));
}

}  // namespace math
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#endif
