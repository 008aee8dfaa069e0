#include "backends/cpu/kernels/matmul_epilogue.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/matmul_epilogue.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/kernels/matmul_math-inl.h"
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

template <Activation kind>
void Apply(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
           std::int64_t sums_stride, float* c, std::int64_t c_stride) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float *bias = epilogue.bias, *residual = epilogue.residual;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float *from = sums + i * sums_stride, *old = residual + (residual ? i * c_stride : 0);
    float* to = c + i * c_stride;
    std::int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) {
      auto x = hn::LoadU(d, from + j);
      if (bias) x = hn::Add(x, hn::LoadU(d, bias + j));
      x = Activate<kind>(d, x);
      if (residual) x = hn::Add(x, hn::LoadU(d, old + j));
      hn::StoreU(x, d, to + j);
    }
    for (const hn::CappedTag<float, 1> one; j < columns; ++j) {
      auto x = hn::Set(one, from[j] + (bias ? bias[j] : 0.0f));
      to[j] = hn::GetLane(Activate<kind>(one, x)) + (residual ? old[j] : 0.0f);
    }
  }
}

void ApplyEpilogue(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
                   std::int64_t sums_stride, float* c, std::int64_t c_stride) {
  switch (epilogue.activation) {
    case Activation::none:
      return Apply<Activation::none>(epilogue, rows, columns, sums, sums_stride, c, c_stride);
    case Activation::relu:
      return Apply<Activation::relu>(epilogue, rows, columns, sums, sums_stride, c, c_stride);
    case Activation::silu:
      return Apply<Activation::silu>(epilogue, rows, columns, sums, sums_stride, c, c_stride);
    case Activation::gelu:
      return Apply<Activation::gelu>(epilogue, rows, columns, sums, sums_stride, c, c_stride);
    case Activation::gelu_tanh:
      return Apply<Activation::gelu_tanh>(epilogue, rows, columns, sums, sums_stride, c, c_stride);
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
                    std::int64_t sums_stride, float* c, std::int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(ApplyEpilogue)(epilogue, rows, columns, sums, sums_stride, c, c_stride);
}

}  // namespace meshloom::backends::cpu
#endif
