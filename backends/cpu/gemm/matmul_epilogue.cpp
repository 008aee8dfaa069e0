#include "backends/cpu/gemm/matmul_epilogue.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/matmul_epilogue.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/gemm/matmul_math-inl.h"
#include "backends/cpu/simd/stored_floats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::Activation;

template <Activation kind, class D, class V = hn::Vec<D>>
HWY_INLINE V Activate(D d, V x) {
  if constexpr (kind == Activation::relu) return hn::Max(x, hn::Zero(d));
  if constexpr (kind == Activation::silu) return hn::Mul(x, VectorSigmoid(d, x));
  if constexpr (kind == Activation::gelu) {
    const V half_erfc =
        hn::Mul(hn::Set(d, 0.5f), VectorErfc(d, hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f))));
    return hn::Mul(x,
                   hn::IfThenElse(hn::Lt(x, hn::Zero(d)), half_erfc, hn::Sub(hn::Set(d, 1.0f), half_erfc)));
  }
  if constexpr (kind == Activation::gelu_tanh) {
    // (1 + tanh u) / 2 = sigmoid(2u)
    const V cube = hn::Mul(hn::Mul(x, x), hn::Mul(x, hn::Set(d, 0.044715f)));
    return hn::Mul(x, VectorSigmoid(d, hn::Mul(hn::Add(x, cube), hn::Set(d, 1.5957691216f))));
  }
  return x;
}

// C and the residual are of floats as Of tells.
template <Activation kind, class Of>
void Apply(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
           std::int64_t sums_stride, typename Of::T* c, std::int64_t c_stride) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* bias = epilogue.bias;
  const auto* residual = static_cast<const typename Of::T*>(epilogue.residual);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* from = sums + i * sums_stride;
    const auto* old = residual + (residual ? i * c_stride : 0);
    auto* to = c + i * c_stride;
    std::int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) {
      auto x = hn::LoadU(d, from + j);
      if (bias) x = hn::Add(x, hn::LoadU(d, bias + j));
      x = Activate<kind>(d, x);
      if (residual) x = hn::Add(x, Of::load(d, old + j));
      Of::store(d, x, to + j);
    }
    for (const hn::CappedTag<float, 1> one; j < columns; ++j) {
      auto x = hn::Set(one, from[j] + (bias ? bias[j] : 0.0f));
      to[j] = Of::store_one(hn::GetLane(Activate<kind>(one, x)) + (residual ? Of::load_one(old[j]) : 0.0f));
    }
  }
}

template <Activation kind>
void ApplyTo(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
             std::int64_t sums_stride, void* c, std::int64_t c_stride) {
  const auto as = [&]<class Of>(Of) {
    Apply<kind, Of>(epilogue, rows, columns, sums, sums_stride, static_cast<typename Of::T*>(c), c_stride);
  };
  switch (epilogue.dtype) {
    case hal::DType::bf16:
#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
      if (static const bool natively = __builtin_cpu_supports("avx512bf16"); natively)
        return as(RoundedNatively());
#endif
      return as(Stored<hal::DType::bf16>());
    case hal::DType::f16:
      return as(Stored<hal::DType::f16>());
    default:
      return as(Stored<hal::DType::f32>());
  }
}

void ApplyEpilogue(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
                   std::int64_t sums_stride, void* c, std::int64_t c_stride) {
  const auto as = [&]<Activation kind>() {
    ApplyTo<kind>(epilogue, rows, columns, sums, sums_stride, c, c_stride);
  };
  switch (epilogue.activation) {
    case Activation::none:
      return as.template operator()<Activation::none>();
    case Activation::relu:
      return as.template operator()<Activation::relu>();
    case Activation::silu:
      return as.template operator()<Activation::silu>();
    case Activation::gelu:
      return as.template operator()<Activation::gelu>();
    case Activation::gelu_tanh:
      return as.template operator()<Activation::gelu_tanh>();
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(ApplyEpilogue);

void apply_epilogue(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
                    std::int64_t sums_stride, void* c, std::int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(ApplyEpilogue)(epilogue, rows, columns, sums, sums_stride, c, c_stride);
}

}  // namespace meshloom::backends::cpu
#endif
