// Softmax, one row at a time: its maximum, the exponentials with their sum, the division.
#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/softmax.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "backends/cpu/simd/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Returns log(sum(exp(x))); y may be x.
float SoftmaxRow(const float* x, float* y, std::int64_t n) {
  const float top = *std::max_element(x, x + n);
  const float sum = SumOver(n, [=](auto d, std::int64_t i) {
    const auto e = math::ExpNotPositive(d, hn::Sub(hn::LoadU(d, x + i), hn::Set(d, top)));
    hn::StoreU(e, d, y + i);
    return e;
  });
  const float factor = 1.0f / sum;
  Over(n, [=](auto d, std::int64_t i) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Set(d, factor)), d, y + i);
  });
  return top + std::log(sum);
}

// dx may be y or dy.
void SoftmaxGradRow(const float* y, const float* dy, float dlse, float* dx, std::int64_t n) {
  const float shift = dlse - SumOver(n, [=](auto d, std::int64_t i) {
                        return hn::Mul(hn::LoadU(d, y + i), hn::LoadU(d, dy + i));
                      });
  Over(n, [=](auto d, std::int64_t i) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Add(hn::LoadU(d, dy + i), hn::Set(d, shift))), d, dx + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(SoftmaxGradRow);

namespace {

// Bindings x (rows, n), y, lse; an item is a row.
void run_softmax(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const std::int64_t n = ConstantReader(args).integer();
  const auto softmax_row = HWY_DYNAMIC_DISPATCH(SoftmaxRow);
  for (std::int64_t row = begin; row < end; ++row)
    args.at(2)[row] = softmax_row(args.at(0) + row * n, args.at(1) + row * n, n);
}

// Bindings y (rows, n), dy, dlse (or y again), dx; an item is a row.
void run_softmax_grad(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer();
  const bool lse = constants.integer() != 0;
  const auto softmax_grad_row = HWY_DYNAMIC_DISPATCH(SoftmaxGradRow);
  for (std::int64_t row = begin; row < end; ++row)
    softmax_grad_row(args.at(0) + row * n, args.at(1) + row * n, lse ? args.at(2)[row] : 0.0f,
                     args.at(3) + row * n, n);
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].dim(-1);
  record(args, "softmax", args.call.inputs[0].elements() / n,
         {reads(args.inputs[0]), writes(args.outputs[0]), writes(args.outputs[1])}, Constants().integer(n));
}

void encode_grad(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].dim(-1);
  const bool lse = args.inputs.size() > 2;
  record(args, "softmax_grad", args.call.inputs[0].elements() / n,
         {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[lse ? 2 : 0]),
          writes(args.outputs[0])},
         Constants().integer(n).integer(lse));
}

}  // namespace

Ops softmax_ops() {
  return {{{"softmax", run_softmax}, {"softmax_grad", run_softmax_grad}},
          {{"softmax", {simd_variant("a row at a time while it is in cache", fit_any, encode)}},
           {"softmax_grad", {simd_variant("a row at a time, in place", fit_any, encode_grad)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
