// Elementwise expressions, interpreted block by block: a step runs over a whole block of vectors, so that interpreting
// the program costs little and all intermediate values stay in the L1 cache.
#include <algorithm>
#include <vector>

#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/elementwise/elementwise_program.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/elementwise/elementwise.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <class F>
HWY_INLINE void Unary(float* dst, const float* a, std::size_t n, F f) {
  const D d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(f(hn::LoadU(d, a + i)), d, dst + i);
}

template <class F>
HWY_INLINE void Binary(float* dst, const float* a, const float* b, std::size_t n, F f) {
  const D d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, dst + i);
}

template <class F>
HWY_INLINE void Ternary(float* dst, const float* a, const float* b, const float* c, std::size_t n, F f) {
  const D d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i)), d, dst + i);
}

// The quotient may round across an integer; the remainder then has the wrong sign or is as large as y.
HWY_INLINE V FlooredMod(V x, V y) {
  const D d;
  const auto zero = hn::Zero(d);
  const V rest = hn::NegMulAdd(hn::Floor(hn::Div(x, y)), y, x);
  const auto wrong = hn::And(hn::Ne(rest, zero), hn::Xor(hn::Lt(rest, zero), hn::Lt(y, zero)));
  const V remainder = hn::IfThenElse(wrong, hn::Add(rest, y), rest);
  return hn::IfThenElse(hn::Ge(hn::Abs(remainder), hn::Abs(y)), hn::Sub(remainder, y), remainder);
}

void RunStep(Code code, float* dst, const float* a, const float* b, const float* c, std::size_t n) {
  const D d;
  switch (code) {
    case Code::copy:
      return Unary(dst, a, n, [](V x) { return x; });
    case Code::add:
      return Binary(dst, a, b, n, [](V x, V y) { return hn::Add(x, y); });
    case Code::sub:
      return Binary(dst, a, b, n, [](V x, V y) { return hn::Sub(x, y); });
    case Code::mul:
      return Binary(dst, a, b, n, [](V x, V y) { return hn::Mul(x, y); });
    case Code::div:
      return Binary(dst, a, b, n, [](V x, V y) { return hn::Div(x, y); });
    // Comparisons, since the processors' minimum and maximum differ in how they treat NaN.
    case Code::max:
      return Binary(dst, a, b, n, [](V x, V y) { return hn::IfThenElse(hn::Lt(x, y), y, x); });
    case Code::min:
      return Binary(dst, a, b, n, [](V x, V y) { return hn::IfThenElse(hn::Lt(y, x), y, x); });
    case Code::gt:
      return Binary(dst, a, b, n,
                    [d](V x, V y) { return hn::IfThenElseZero(hn::Gt(x, y), hn::Set(d, 1.0f)); });
    case Code::neg:
      return Unary(dst, a, n, [](V x) { return hn::Neg(x); });
    case Code::abs:
      return Unary(dst, a, n, [](V x) { return hn::Abs(x); });
    case Code::exp:
      return Unary(dst, a, n, [d](V x) { return math::Exp(d, x); });
    case Code::log:
      return Unary(dst, a, n, [d](V x) { return math::Log(d, x); });
    case Code::sqrt:
      return Unary(dst, a, n, [](V x) { return hn::Sqrt(x); });
    case Code::rsqrt:
      return Unary(dst, a, n, [d](V x) { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); });
    case Code::tanh:
      return Unary(dst, a, n, [d](V x) { return math::Tanh(d, x); });
    case Code::sigmoid:
      return Unary(dst, a, n, [d](V x) { return math::Sigmoid(d, x); });
    case Code::erf:
      return Unary(dst, a, n, [d](V x) { return math::Erf(d, x); });
    case Code::is_finite:
      return Unary(dst, a, n, [d](V x) { return hn::IfThenElseZero(hn::IsFinite(x), hn::Set(d, 1.0f)); });
    case Code::select:
      return Ternary(dst, a, b, c, n,
                     [d](V x, V y, V z) { return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), z, y); });
    case Code::eq:
      return Binary(dst, a, b, n,
                    [d](V x, V y) { return hn::IfThenElseZero(hn::Eq(x, y), hn::Set(d, 1.0f)); });
    case Code::floor:
      return Unary(dst, a, n, [](V x) { return hn::Floor(x); });
    case Code::mod:
      return Binary(dst, a, b, n, [](V x, V y) { return FlooredMod(x, y); });
  }
}

std::size_t Lanes() { return hn::Lanes(D()); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(RunStep);
HWY_EXPORT(Lanes);

namespace {

// Element `at` of a tensor of `dtype`.
template <typename Byte>
Byte* element(Byte* data, hal::DType dtype, std::int64_t at) {
  return data + at * static_cast<std::int64_t>(hal::size_of(dtype));
}

// Copies `count` elements from position `start` of an input that repeats every `size` elements.
void copy_repeating(float* to, const std::byte* from, hal::DType dtype, std::int64_t size, std::int64_t start,
                    std::int64_t count) {
  for (std::int64_t at = start % size; count > 0; at = 0) {
    const std::int64_t piece = std::min(count, size - at);
    widen(element(from, dtype, at), dtype, piece, to);
    to += piece;
    count -= piece;
  }
}

void run_elementwise(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const ElementwiseProgram program = decode(args.constants);
  const auto lanes = static_cast<std::int64_t>(HWY_DYNAMIC_DISPATCH(Lanes)());
  const std::int64_t block = program.block();  // slots * block floats fit in the memory below
  // Full blocks of f32 inputs and outputs are used in place; a tail is padded and 16-bit floats are widened in the slots'
  // own memory.
  ElementwiseSlots slots(program);
  for (std::uint32_t i = 0; i < program.inputs(); ++i)
    if (program.extents[i] == Extent::one) {
      float value;
      widen(args.at<const std::byte>(i), program.dtypes[i], 1, &value);
      std::fill_n(slots.own(i), block, value);
    }

  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t start = item * block, count = std::min(block, program.elements - start);
    const std::int64_t padded = hal::round_up(count, lanes);
    const bool tail = padded != count;
    for (std::uint32_t i = 0; i < program.inputs(); ++i) {
      if (program.extents[i] == Extent::one) continue;
      const std::int64_t size = program.sizes[i], first = start % size;
      if (!tail && first + count <= size && program.dtypes[i] == hal::DType::f32) {
        slots.at(i) = args.at<float>(i) + first;
        continue;
      }
      float* own = slots.at(i) = slots.own(i);
      copy_repeating(own, args.at<const std::byte>(i), program.dtypes[i], size, start, count);
      std::fill(own + count, own + padded, 0.0f);
    }
    const bool apart = tail || program.result != hal::DType::f32;
    for (std::uint32_t o = 0; o < program.outputs; ++o) {
      const std::uint32_t slot = program.first_output() + o;
      slots.at(slot) = apart ? slots.own(slot) : args.at<float>(program.inputs() + o) + start;
    }
    slots.run_steps(static_cast<std::size_t>(padded));
    if (apart)
      for (std::uint32_t o = 0; o < program.outputs; ++o)
        narrow(slots.own(program.first_output() + o), count, program.result,
               element(args.at<std::byte>(program.inputs() + o), program.result, start));
  }
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call, true);
  if (reason.empty()) make_elementwise_program(call, reason);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(std::move(reason));
}

void encode_call(const kernels::EncodeArgs& args) {
  std::string reason;
  const auto program = make_elementwise_program(args.call, reason);
  if (!program) throw Error(args.label, "the call must fit the variant", reason);
  std::vector<hal::Binding> bindings;
  for (const hal::Binding& input : args.inputs) bindings.push_back(reads(input));
  for (const hal::Binding& output : args.outputs) bindings.push_back(writes(output));
  record_dispatch(args, "elementwise", grid(hal::ceil_div(program->elements, program->block()), 1, 1),
                  bindings, encode(*program));
}

}  // namespace

void run_steps(const ElementwiseProgram& program, float* const* at, std::size_t count) {
  const auto run_step = HWY_DYNAMIC_DISPATCH(RunStep);
  for (const Step& step : program.steps)
    run_step(step.code, at[step.dst], at[step.a], at[step.b], at[step.c], count);
}

Ops elementwise_ops() {
  return {{{"elementwise", run_elementwise}},
          {{"elementwise",
            {low_precision_variant("interprets the expression over blocks of vectors that stay in cache", fit,
                                   encode_call)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
