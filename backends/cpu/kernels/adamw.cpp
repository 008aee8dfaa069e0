// AdamW in one pass over parameter, gradient and moments, at the speed of memory.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/adamw_step.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/adamw.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "backends/cpu/simd/stored_floats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

struct AdamWTensors {
  const float *p, *g, *m, *v;
  float *p_out, *m_out, *v_out;
};

// put_copy(d, p', i) stores the low-precision copy, where there is one.
template <class PutCopy>
HWY_INLINE void Update(const float* const* in, float* const* out, std::int64_t n, const AdamWStep& step,
                       PutCopy put_copy) {
  const AdamWTensors t{in[0], in[1], in[2], in[3], out[0], out[1], out[2]};
  const AdamWStep s = step;
  Over(n, [t, s, put_copy](auto d, std::int64_t i) {
    const auto p = hn::LoadU(d, t.p + i);
    const auto g = hn::Mul(hn::LoadU(d, t.g + i), hn::Set(d, s.scale));
    const auto m = hn::MulAdd(hn::Set(d, s.b1), hn::LoadU(d, t.m + i), hn::Mul(hn::Set(d, s.b1_rest), g));
    const auto v =
        hn::MulAdd(hn::Set(d, s.b2), hn::LoadU(d, t.v + i), hn::Mul(hn::Mul(hn::Set(d, s.b2_rest), g), g));
    const auto root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, s.v_unbias))), hn::Set(d, s.eps));
    const auto move = hn::Div(hn::Mul(m, hn::Set(d, s.m_unbias)), root);
    const auto next = hn::NegMulAdd(hn::Set(d, s.lr), hn::MulAdd(hn::Set(d, s.decay), p, move), p);
    hn::StoreU(m, d, t.m_out + i);
    hn::StoreU(v, d, t.v_out + i);
    hn::StoreU(next, d, t.p_out + i);
    put_copy(d, next, i);
  });
}

void AdamW(const float* const* in, float* const* out, std::int64_t n, const AdamWStep& step) {
  Update(in, out, n, step, [](auto, auto, std::int64_t) {});
}

void AdamWBf16(const float* const* in, float* const* out, std::int64_t n, const AdamWStep& step,
               std::uint16_t* copy) {
  Update(in, out, n, step,
         [copy](auto d, auto next, std::int64_t i) { Stored<hal::DType::bf16>::store(d, next, copy + i); });
}

void AdamWF16(const float* const* in, float* const* out, std::int64_t n, const AdamWStep& step,
              std::uint16_t* copy) {
  Update(in, out, n, step,
         [copy](auto d, auto next, std::int64_t i) { Stored<hal::DType::f16>::store(d, next, copy + i); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(AdamW);
HWY_EXPORT(AdamWBf16);
HWY_EXPORT(AdamWF16);

namespace {

constexpr std::int64_t kBlock = 4096;  // elements per work item

// Bindings p, g, m, v, control, p', m', v' and, where a dtype follows the constants, the copy; an item is a block of elements.
void run_adamw(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, bool has_copy) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer();
  const float* control = args.at(4);
  const AdamWStep step = adamw_step(control, constants);
  const hal::DType dtype = has_copy ? constants.dtype() : hal::DType::f32;
  const std::int64_t first = begin * kBlock, count = std::min(n, end * kBlock) - first;
  std::uint16_t* copy = has_copy ? args.at<std::uint16_t>(8) + first : nullptr;
  if (control[2] == 0.0f) {
    constexpr int kFrom[3] = {0, 2, 3};
    for (int i = 0; i < 3; ++i) {
      const float* from = args.at(static_cast<std::size_t>(kFrom[i])) + first;
      float* to = args.at(static_cast<std::size_t>(5 + i)) + first;
      if (from != to) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    }
    if (has_copy) narrow(args.at(5) + first, count, dtype, copy);
    return;
  }
  const float* const in[4] = {args.at(0) + first, args.at(1) + first, args.at(2) + first, args.at(3) + first};
  float* const out[3] = {args.at(5) + first, args.at(6) + first, args.at(7) + first};
  if (!has_copy)
    HWY_DYNAMIC_DISPATCH(AdamW)(in, out, count, step);
  else if (dtype == hal::DType::bf16)
    HWY_DYNAMIC_DISPATCH(AdamWBf16)(in, out, count, step, copy);
  else
    HWY_DYNAMIC_DISPATCH(AdamWF16)(in, out, count, step, copy);
}

void run_plain(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  run_adamw(args, begin, end, false);
}
void run_with_copy(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  run_adamw(args, begin, end, true);
}

void encode(const kernels::EncodeArgs& args) {
  record_adamw(args, "adamw", hal::ceil_div(args.call.inputs[0].elements(), kBlock));
}

}  // namespace

Ops adamw_ops() {
  return {{{"adamw", run_plain}, {"adamw_with_copy", run_with_copy}},
          {{"adamw", {low_precision_variant("one pass over all tensors", fit_floats, encode)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
