// AdamW in one pass over parameter, gradient and moments, at the speed of memory.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/adamw_step.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/adamw.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
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

void AdamW(const float* const* in, float* const* out, std::int64_t n, const AdamWStep& step) {
  const AdamWTensors t{in[0], in[1], in[2], in[3], out[0], out[1], out[2]};
  const AdamWStep s = step;
  Over(n, [t, s](auto d, std::int64_t i) {
    const auto p = hn::LoadU(d, t.p + i);
    const auto g = hn::Mul(hn::LoadU(d, t.g + i), hn::Set(d, s.scale));
    const auto m = hn::MulAdd(hn::Set(d, s.b1), hn::LoadU(d, t.m + i), hn::Mul(hn::Set(d, s.b1_rest), g));
    const auto v =
        hn::MulAdd(hn::Set(d, s.b2), hn::LoadU(d, t.v + i), hn::Mul(hn::Mul(hn::Set(d, s.b2_rest), g), g));
    const auto root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, s.v_unbias))), hn::Set(d, s.eps));
    const auto move = hn::Div(hn::Mul(m, hn::Set(d, s.m_unbias)), root);
    hn::StoreU(m, d, t.m_out + i);
    hn::StoreU(v, d, t.v_out + i);
    hn::StoreU(hn::NegMulAdd(hn::Set(d, s.lr), hn::MulAdd(hn::Set(d, s.decay), p, move), p), d, t.p_out + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(AdamW);

namespace {

constexpr std::int64_t kBlock = 4096;  // elements per work item

// Bindings p, g, m, v, control, p', m', v'; an item is a block of elements.
void run_adamw(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer();
  const float* control = args.at(4);
  const std::int64_t first = begin * kBlock, count = std::min(n, end * kBlock) - first;
  if (control[2] == 0.0f) {
    constexpr int kFrom[3] = {0, 2, 3};
    for (int i = 0; i < 3; ++i) {
      const float* from = args.at(static_cast<std::size_t>(kFrom[i])) + first;
      float* to = args.at(static_cast<std::size_t>(5 + i)) + first;
      if (from != to) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    }
    return;
  }
  const AdamWStep step = adamw_step(control, constants);
  const float* const in[4] = {args.at(0) + first, args.at(1) + first, args.at(2) + first, args.at(3) + first};
  float* const out[3] = {args.at(5) + first, args.at(6) + first, args.at(7) + first};
  HWY_DYNAMIC_DISPATCH(AdamW)(in, out, count, step);
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].elements();
  record(args, "adamw", hal::ceil_div(n, kBlock),
         {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]), reads(args.inputs[3]),
          reads(args.inputs[4]), writes(args.outputs[0]), writes(args.outputs[1]), writes(args.outputs[2])},
         adamw_constants(n, args.call.attrs));
}

}  // namespace

Ops adamw_ops() {
  return {{{"adamw", run_adamw}},
          {{"adamw", {simd_variant("one pass over all four tensors", fit_any, encode)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
