// The register block of micro_tile(), compiled once per instruction set (see matmul_math-inl.h).
#if defined(MESHLOOM_BACKENDS_CPU_KERNELS_MICRO_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_BACKENDS_CPU_KERNELS_MICRO_TILE_INL_H_
#undef MESHLOOM_BACKENDS_CPU_KERNELS_MICRO_TILE_INL_H_
#else
#define MESHLOOM_BACKENDS_CPU_KERNELS_MICRO_TILE_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {

// Sixteen vector registers hold 6 x 2 sums, thirty-two hold 12 x 2.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kRows = 12;
#else
constexpr int kRows = 6;
#endif
using D = hwy::HWY_NAMESPACE::CappedTag<float, 16>;

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#endif
