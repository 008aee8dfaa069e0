// Softmax cross-entropy, one row of logits at a time in one pass over memory: pieces that fit the L1 cache are scanned
// for their maximum, then summed, and the running sum is rescaled when the running maximum grows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/rows.h"
#include "kernels/cross_entropy/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/cross_entropy.cpp"
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

float RowMax(const float* x, std::int64_t n) {
  const Wide d;
  auto wide = hn::Set(d, -std::numeric_limits<float>::infinity());
  float single = -std::numeric_limits<float>::infinity();
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) wide = hn::Max(wide, hn::LoadU(d, x + i));
  for (; i < n; ++i) single = std::max(single, x[i]);
  return std::max(single, hn::GetLane(hn::MaxOfLanes(d, wide)));
}

// log(sum over i of exp(x_i)).
float LogSumExp(const float* x, std::int64_t n) {
  constexpr std::int64_t kPiece = 4096;
  float row_max = -std::numeric_limits<float>::infinity();
  double sum = 0;
  for (std::int64_t at = 0; at < n; at += kPiece) {
    const std::int64_t count = std::min(kPiece, n - at);
    const float* piece = x + at;
    const float piece_max = RowMax(piece, count);
    if (piece_max > row_max) {
      sum *= std::exp(static_cast<double>(row_max) - static_cast<double>(piece_max));
      row_max = piece_max;
    }
    // With only -infinity so far, the difference below would be NaN.
    const float base = row_max == -std::numeric_limits<float>::infinity() ? 0.0f : row_max;
    sum += SumOver(count, [piece, base](auto d, std::int64_t i) {
      return math::ExpNotPositive(d, hn::Sub(hn::LoadU(d, piece + i), hn::Set(d, base)));
    });
  }
  return static_cast<float>(static_cast<double>(row_max) + std::log(sum));
}

// out = exp(x - lse) * factor; out may be x.
void SoftmaxTimes(const float* x, float lse, float factor, float* out, std::int64_t n) {
  Over(n, [=](auto d, std::int64_t i) {
    const auto p = math::Exp(d, hn::Sub(hn::LoadU(d, x + i), hn::Set(d, lse)));
    hn::StoreU(hn::Mul(p, hn::Set(d, factor)), d, out + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(LogSumExp);
HWY_EXPORT(SoftmaxTimes);

namespace {

// Ignored targets are negative or beyond the vocabulary, as in the reference.
bool ignored(std::int64_t target, std::int64_t classes) { return target < 0 || target >= classes; }
bool among(std::int64_t column, std::int64_t v) { return column >= 0 && column < v; }

// Bindings logits (n, v), targets, loss, valid, lse; an item is a row.
void run_cross_entropy(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t v = constants.integer();
  RowsIn rows(args, 0, constants.dtype());
  const std::int64_t first = constants.integer(), classes = constants.integer();
  const bool part = constants.integer() != 0;
  const auto log_sum_exp = HWY_DYNAMIC_DISPATCH(LogSumExp);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* logits = rows.row(row * v, v);
    const std::int32_t target = args.at<const std::int32_t>(1)[row];
    const bool counts = !ignored(target, classes);
    const float lse = counts ? log_sum_exp(logits, v) : 0.0f;
    const std::int64_t column = target - first;
    args.at(2)[row] = counts && among(column, v) ? (part ? 0.0f : lse) - logits[column] : 0.0f;
    args.at(3)[row] = counts ? 1.0f : 0.0f;
    args.at(4)[row] = lse;
  }
}

// Bindings logits, targets, lse, dloss, dlogits; an item is a row.
void run_cross_entropy_grad(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t v = constants.integer();
  const hal::DType dtype = constants.dtype();
  RowsIn rows(args, 0, dtype);
  RowsOut gradients(args, 4, dtype);
  const std::int64_t first = constants.integer(), classes = constants.integer();
  const auto softmax_times = HWY_DYNAMIC_DISPATCH(SoftmaxTimes);
  for (std::int64_t row = begin; row < end; ++row) {
    float* out = gradients.row(row * v, v);
    const std::int32_t target = args.at<const std::int32_t>(1)[row];
    if (ignored(target, classes)) {
      std::fill_n(out, v, 0.0f);
      gradients.done();
      continue;
    }
    const float* logits = rows.row(row * v, v);
    const float lse = args.at(2)[row], dloss = args.at(3)[row];
    const std::int64_t column = target - first;
    const bool here = among(column, v);
    const float p_minus_1 =
        here ? std::expm1(logits[column] - lse) : 0.0f;  // no cancellation where p is nearly 1
    softmax_times(logits, lse, dloss, out, v);
    if (here) out[column] = p_minus_1 * dloss;
    gradients.done();
  }
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::TensorType& logits = args.call.inputs[0];
  const kernels::CrossEntropyColumns columns = kernels::cross_entropy_columns(args.call);
  record(args, "cross_entropy", logits.dim(0),
         {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0]), writes(args.outputs[1]),
          writes(args.outputs[2])},
         Constants()
             .integer(logits.dim(1))
             .dtype(logits.dtype)
             .integer(columns.first)
             .integer(columns.classes)
             .integer(columns.part ? 1 : 0));
}

void encode_grad(const kernels::EncodeArgs& args) {
  const kernels::TensorType& logits = args.call.inputs[0];
  const kernels::CrossEntropyColumns columns = kernels::cross_entropy_columns(args.call);
  record(
      args, "cross_entropy_grad", logits.dim(0),
      {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]), reads(args.inputs[3]),
       writes(args.outputs[0])},
      Constants().integer(logits.dim(1)).dtype(logits.dtype).integer(columns.first).integer(columns.classes));
}

}  // namespace

Ops cross_entropy_ops() {
  return {{{"cross_entropy", run_cross_entropy}, {"cross_entropy_grad", run_cross_entropy_grad}},
          {{"cross_entropy",
            {low_precision_variant("one pass over the logits with a running maximum", fit_floats, encode)}},
           {"cross_entropy_grad", {low_precision_variant("one pass, in place", fit_floats, encode_grad)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
