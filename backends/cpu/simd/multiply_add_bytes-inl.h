// Sums of products of integers, lane by lane: four bytes at a time where the processor has the instruction, else two int16.
// clang-format off: the guard toggles by target
#if defined(MESHLOOM_BACKENDS_CPU_SIMD_MULTIPLY_ADD_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_BACKENDS_CPU_SIMD_MULTIPLY_ADD_BYTES_INL_H_
#undef MESHLOOM_BACKENDS_CPU_SIMD_MULTIPLY_ADD_BYTES_INL_H_
#else
#define MESHLOOM_BACKENDS_CPU_SIMD_MULTIPLY_ADD_BYTES_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3_DL && defined(__x86_64__)
constexpr bool kMultipliesBytes = true;
#else
constexpr bool kMultipliesBytes = false;
#endif

// Products of two bytes: of those that lack products of four.
#if HWY_TARGET <= HWY_SSE4 && defined(__x86_64__)
constexpr bool kMultipliesBytePairs = !kMultipliesBytes;

// In every int16 the sum of two products of bytes, of which a's are unsigned and b's signed; it must not exceed an int16.
template <class V>
HWY_INLINE V MultiplyBytePairs(V a, V b) {
  if constexpr (sizeof(a.raw) == 64)
    return V{_mm512_maddubs_epi16(a.raw, b.raw)};
  else if constexpr (sizeof(a.raw) == 32)
    return V{_mm256_maddubs_epi16(a.raw, b.raw)};
  else
    return V{_mm_maddubs_epi16(a.raw, b.raw)};
}
#else
constexpr bool kMultipliesBytePairs = false;
#endif

// sum + the products of the lanes' two int16.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V MultiplyAddPairs([[maybe_unused]] D d, V a, V b, V sum) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET != HWY_SCALAR && defined(__x86_64__)
  const hn::RepartitionToNarrow<D> d16;
  V unused = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, a), hn::BitCast(d16, b), sum, unused);
#else
  const V low = hn::Mul(hn::ShiftRight<16>(hn::ShiftLeft<16>(a)), hn::ShiftRight<16>(hn::ShiftLeft<16>(b)));
  return hn::Add(sum, hn::Add(low, hn::Mul(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b))));
#endif
}

#if HWY_TARGET <= HWY_AVX3_DL && defined(__x86_64__)
// sum + the products of the lanes' four bytes, of which a's are unsigned and b's signed. Inline assembly: Highway checks that the
// processor has this instruction, but does not enable it in the compiler.
template <class V>
HWY_INLINE V MultiplyAddBytes(V a, V b, V sum) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#endif
