// Quantizes rows to eight-bit floats and dequantizes them.
#include "kernels/quantize_dequantize/quantize_dequantize.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/quantized/max_abs.h"
#include "backends/cpu/kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/quantized/quantize_dequantize.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// As kernels::round_to, for a row of finite numbers that are not all zero; `top` is its largest exponent.
void Round(const float* x, std::int64_t count, kernels::RoundingSteps steps, std::uint32_t top, float* into) {
  std::int64_t i = 0;
  const std::uint32_t min_exponent = top - steps.span;
  // Adding and subtracting this number rounds a number below the smallest normal one to whole steps. It must be
  // finite itself.
  const std::uint32_t anchor = min_exponent + steps.dropped;
  if (anchor < 255) {
    const hn::ScalableTag<float> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto sign = hn::Set(du, 0x80000000u), one = hn::Set(du, 1), limit = hn::Set(du, min_exponent << 23);
    const auto half = hn::Set(du, (1u << (steps.dropped - 1)) - 1);
    const auto ground = hn::Set(d, std::bit_cast<float>(anchor << 23));
    const int dropped = static_cast<int>(steps.dropped);
    const hn::RebindToSigned<decltype(d)> di;
    for (; i + lanes <= count; i += lanes) {
      const auto bits = hn::BitCast(du, hn::LoadU(d, x + i));
      const auto magnitude = hn::AndNot(sign, bits);
      const auto odd = hn::And(hn::ShiftRightSame(magnitude, dropped), one);
      const auto sum = hn::Add(hn::Add(magnitude, half), odd);
      const auto normal = hn::ShiftLeftSame(hn::ShiftRightSame(sum, dropped), dropped);
      const auto small = hn::BitCast(du, hn::Sub(hn::Add(hn::BitCast(d, magnitude), ground), ground));
      const auto is_small = hn::Lt(hn::BitCast(di, magnitude), hn::BitCast(di, limit));
      const auto rounded = hn::IfThenElse(hn::RebindMask(du, is_small), small, normal);
      hn::StoreU(hn::BitCast(d, hn::Or(rounded, hn::And(bits, sign))), d, into + i);
    }
  }
  for (; i < count; ++i) into[i] = kernels::round_to(steps, top, x[i]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Round);

namespace {

// Bindings x, y. Items: rows.
void run_quantize_dequantize(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t columns = constants.integer();
  const hal::DType dtype = constants.dtype();
  const kernels::RoundingSteps steps =
      kernels::rounding_steps(static_cast<kernels::EightBitFloat>(constants.word()));
  RowsIn in(args, 0, dtype);
  RowsOut out(args, 1, dtype);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = in.row(r * columns, columns);
    float* y = out.row(r * columns, columns);
    const std::uint32_t top = kernels::top_exponent(max_abs(x, columns));
    if (top == 0 || top == 255)
      std::transform(x, x + columns, y, [&](float v) { return kernels::round_to(steps, top, v); });
    else
      HWY_DYNAMIC_DISPATCH(Round)(x, columns, steps, top, y);
    out.done();
  }
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::TensorType& x = args.call.inputs[0];
  record(args, "quantize_dequantize", x.dim(0), {reads(args.inputs[0]), writes(args.outputs[0])},
         Constants().integer(x.dim(1)).dtype(x.dtype).word(
             static_cast<std::uint32_t>(kernels::rounding_format(args.call))));
}

}  // namespace

Ops quantize_dequantize_ops() {
  return {
      {{"quantize_dequantize", run_quantize_dequantize}},
      {{"quantize_dequantize", {low_precision_variant("a row at a time in vectors", fit_floats, encode)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
