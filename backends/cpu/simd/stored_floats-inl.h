// Vectors of f32 from floats in memory of any dtype, and back, compiled once per instruction set: see
// matmul_math-inl.h.
#if defined(MESHLOOM_BACKENDS_CPU_KERNELS_STORED_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_BACKENDS_CPU_KERNELS_STORED_FLOATS_INL_H_
#undef MESHLOOM_BACKENDS_CPU_KERNELS_STORED_FLOATS_INL_H_
#else
#define MESHLOOM_BACKENDS_CPU_KERNELS_STORED_FLOATS_INL_H_
#endif

#include <cstdint>

#include "hal/dtype.h"
#include "hal/low_precision.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {

// T: how one lies in memory. Single elements are read and written by `load_one` and `store_one`, rounded as
// vectors are.
template <hal::DType DTYPE>
struct Stored;

template <>
struct Stored<hal::DType::f32> {
  using T = float;
  template <class D>
  static HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const T* from) {
    return hwy::HWY_NAMESPACE::LoadU(d, from);
  }
  template <class D, class V>
  static HWY_INLINE void store(D d, V x, T* to) {
    hwy::HWY_NAMESPACE::StoreU(x, d, to);
  }
  static float load_one(T x) { return x; }
  static T store_one(float x) { return x; }
};

template <>
struct Stored<hal::DType::bf16> {
  using T = std::uint16_t;
  template <class D>
  static HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const T* from) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
  }
  template <class D, class V>
  static HWY_INLINE void store([[maybe_unused]] D d, V x, T* to) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(hn::Set(du, 0x7fff), odd));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
    const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(kept))), d16, to);
  }
  static float load_one(T x) { return hal::from_bf16(x); }
  static T store_one(float x) { return hal::to_bf16(x); }
};

#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
// Rounded by the instruction of AVX512_BF16, for which subnormal numbers are zero.
struct RoundedNatively : Stored<hal::DType::bf16> {
  template <class D, class V>
  static HWY_INLINE void store(D, V x, T* to) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Rebind<std::uint16_t, D> d16;
    hn::Vec<decltype(d16)> rounded;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded.raw) : "v"(x.raw));
    hn::StoreU(rounded, d16, to);
  }
};
#endif

// In vectors only where the processor itself converts: Highway's other ways differ in how they round.
template <>
struct Stored<hal::DType::f16> {
  using T = std::uint16_t;
  template <class D>
  static HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load([[maybe_unused]] D d, const T* from) {
    namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::RebindToUnsigned<decltype(d16)> du16;
    return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(du16, from)));
#else
    HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = hal::from_f16(from[i]);
    return hn::Load(d, wide);
#endif
  }
  template <class D, class V>
  static HWY_INLINE void store([[maybe_unused]] D d, V x, T* to) {
    namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::RebindToUnsigned<decltype(d16)> du16;
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, x)), du16, to);
#else
    HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(x, d, wide);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = hal::to_f16(wide[i]);
#endif
  }
  static float load_one(T x) { return hal::from_f16(x); }
  static T store_one(float x) { return hal::to_f16(x); }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#endif
