// AdamW on eight-bit moments: a block at a time is decoded, updated and coded again while it is in cache.
#include "kernels/adamw_8bit/adamw_8bit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/adamw_step.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/adamw_8bit.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr std::int64_t kSize = kernels::kMomentBlock;

// The magnitudes of codes, as a function of the code, are convex and linear between powers of two, so they are the largest of
// eight lines; the codes of magnitudes are the smallest of the inverse lines.
template <class D, class V>
HWY_INLINE V MagnitudeOf(D d, V code) {
  const V nine = hn::MulAdd(code, hn::Set(d, 9.0f), hn::Set(d, 9.0f));  // exact, as are the differences
  V y = hn::Mul(code, hn::Set(d, 1e-7f));
  y = hn::Max(y, hn::Mul(hn::Sub(nine, hn::Set(d, 16.0f)), hn::Set(d, 5e-8f)));
  y = hn::Max(y, hn::Mul(hn::Sub(nine, hn::Set(d, 32.0f)), hn::Set(d, 2.5e-7f)));
  y = hn::Max(y, hn::Mul(hn::Sub(nine, hn::Set(d, 64.0f)), hn::Set(d, 1.25e-6f)));
  y = hn::Max(y, hn::Mul(hn::Sub(nine, hn::Set(d, 128.0f)), hn::Set(d, 6.25e-6f)));
  y = hn::Max(y, hn::Mul(hn::Sub(nine, hn::Set(d, 256.0f)), hn::Set(d, 3.125e-5f)));
  y = hn::Max(y, hn::Mul(hn::Sub(nine, hn::Set(d, 512.0f)), hn::Set(d, 1.5625e-4f)));
  return hn::Max(y, hn::Mul(hn::Sub(nine, hn::Set(d, 1024.0f)), hn::Set(d, 7.8125e-4f)));
}

template <class D, class V>
HWY_INLINE V CodeOf(D d, V y) {
  const auto line = [&](double slope, double start) {
    return hn::MulAdd(y, hn::Set(d, static_cast<float>(slope)), hn::Set(d, static_cast<float>(start)));
  };
  V code = hn::Mul(y, hn::Set(d, 1e7f));
  code = hn::Min(code, line(2e7 / 9, 7.0 / 9));
  code = hn::Min(code, line(4e6 / 9, 23.0 / 9));
  code = hn::Min(code, line(8e5 / 9, 55.0 / 9));
  code = hn::Min(code, line(1.6e5 / 9, 119.0 / 9));
  code = hn::Min(code, line(3.2e4 / 9, 247.0 / 9));
  code = hn::Min(code, line(6.4e3 / 9, 503.0 / 9));
  return hn::Min(code, line(1.28e3 / 9, 1015.0 / 9));
}

template <class D>
HWY_INLINE auto LoadCodes(D, const std::uint8_t* from) {
  const hn::Rebind<std::uint8_t, D> d8;
  const hn::RebindToSigned<D> di;
  return hn::PromoteTo(di, hn::LoadU(d8, from));
}

// One block of n elements.
void AdamW8bit(const AdamW8bitTensors& tensors, std::int64_t n, const AdamWStep& step) {
  const AdamW8bitTensors t = tensors;
  const AdamWStep s = step;
  HWY_ALIGN float m_new[kSize], root_new[kSize];
  float m_scale, v_scale;
  std::memcpy(&m_scale, t.m + kSize, sizeof m_scale);
  std::memcpy(&v_scale, t.v + kSize, sizeof v_scale);
  m_scale *= 10.0f;
  const float root_unbias = std::sqrt(s.v_unbias);
  Over(n, [&, t, s](auto d, std::int64_t i) {
    const hn::RebindToSigned<decltype(d)> di;
    const auto code = LoadCodes(d, t.m + i);
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(di, 128)));
    const auto m_size =
        hn::Mul(MagnitudeOf(d, hn::ConvertTo(d, hn::And(code, hn::Set(di, 127)))), hn::Set(d, m_scale));
    const auto m_old = hn::Or(m_size, hn::BitCast(d, sign));
    const auto root_old =
        hn::Mul(MagnitudeOf(d, hn::ConvertTo(d, LoadCodes(d, t.v + i))), hn::Set(d, v_scale));
    const auto p = hn::LoadU(d, t.p + i);
    const auto g = hn::Mul(hn::LoadU(d, t.g + i), hn::Set(d, s.scale));
    const auto m = hn::MulAdd(hn::Set(d, s.b1), m_old, hn::Mul(hn::Set(d, s.b1_rest), g));
    const auto v = hn::MulAdd(hn::Mul(hn::Set(d, s.b2), root_old), root_old,
                              hn::Mul(hn::Mul(hn::Set(d, s.b2_rest), g), g));
    const auto root = hn::Sqrt(v);
    const auto move = hn::Div(hn::Mul(m, hn::Set(d, s.m_unbias)),
                              hn::MulAdd(root, hn::Set(d, root_unbias), hn::Set(d, s.eps)));
    hn::StoreU(m, d, m_new + i);
    hn::StoreU(root, d, root_new + i);
    hn::StoreU(hn::NegMulAdd(hn::Set(d, s.lr), hn::MulAdd(hn::Set(d, s.decay), p, move), p), d, t.p_out + i);
  });
  const Wide wide;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(wide));
  const std::int64_t whole = std::min(kSize, hal::round_up(n, lanes));
  for (std::int64_t i = n; i < whole; ++i) m_new[i] = root_new[i] = 0.0f;
  auto m_max = hn::Zero(wide), root_max = hn::Zero(wide);
  for (std::int64_t i = 0; i < whole; i += lanes) {
    m_max = hn::Max(m_max, hn::Abs(hn::LoadU(wide, m_new + i)));
    root_max = hn::Max(root_max, hn::LoadU(wide, root_new + i));
  }
  m_scale = hn::GetLane(hn::MaxOfLanes(wide, m_max));
  v_scale = hn::GetLane(hn::MaxOfLanes(wide, root_max));
  constexpr float kSmallestScale = 1e-30f;
  const float m_inverse = m_scale < kSmallestScale ? 0.0f : 1.0f / m_scale;
  const float v_inverse = v_scale < kSmallestScale ? 0.0f : 1.0f / v_scale;
  const std::int32_t v_min = v_inverse > 0 ? 1 : 0;  // of positive second moments
  Over(n, [&, t](auto d, std::int64_t i) {
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const hn::RebindToSigned<decltype(d)> di;
    const auto half = hn::Set(d, 0.5f);
    const auto m = hn::LoadU(d, m_new + i);
    // Not times 0.1 / scale: a block of scale 1e38 has none.
    const auto m_code = hn::ConvertTo(
        di, hn::Add(CodeOf(d, hn::Mul(hn::Mul(hn::Abs(m), hn::Set(d, m_inverse)), hn::Set(d, 0.1f))), half));
    const auto sign =
        hn::And(hn::ShiftRight<24>(hn::BitCast(di, hn::And(m, hn::Set(d, -0.0f)))), hn::Set(di, 128));
    const auto m_signed = hn::IfThenElseZero(hn::Gt(m_code, hn::Zero(di)), hn::Or(m_code, sign));
    hn::StoreU(hn::DemoteTo(d8, m_signed), d8, t.m_out + i);
    const auto root = hn::LoadU(d, root_new + i);
    const auto v_code = hn::ConvertTo(di, hn::Add(CodeOf(d, hn::Mul(root, hn::Set(d, v_inverse))), half));
    const auto v_least =
        hn::IfThenElseZero(hn::RebindMask(di, hn::Gt(root, hn::Zero(d))), hn::Set(di, v_min));
    hn::StoreU(hn::DemoteTo(d8, hn::Max(v_code, v_least)), d8, t.v_out + i);
  });
  for (const auto& [codes, scale] : {std::pair{t.m_out, m_scale}, {t.v_out, v_scale}}) {
    std::memset(codes + n, 0, static_cast<std::size_t>(kSize - n));
    std::memcpy(codes + kSize, &scale, sizeof scale);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(AdamW8bit);

namespace {

constexpr std::int64_t kBlocks = 16;  // per work item

// Bindings p, g, m, v, control, p', m', v' and, where a dtype follows the constants, the copy; an item is some blocks.
void run_adamw_8bit(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, bool has_copy) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer();
  const float* control = args.at(4);
  const AdamWStep step = adamw_step(control, constants);
  const hal::DType dtype = has_copy ? constants.dtype() : hal::DType::f32;
  // Of a block that has just been written.
  const auto put_copy = [&](std::int64_t at, std::int64_t count) {
    if (has_copy) narrow(args.at(5) + at, count, dtype, args.at<std::uint16_t>(8) + at);
  };
  const auto update_block = HWY_DYNAMIC_DISPATCH(AdamW8bit);
  const auto* m = reinterpret_cast<const std::uint8_t*>(args.at(2));
  const auto* v = reinterpret_cast<const std::uint8_t*>(args.at(3));
  auto* m_out = reinterpret_cast<std::uint8_t*>(args.at(6));
  auto* v_out = reinterpret_cast<std::uint8_t*>(args.at(7));
  const std::int64_t blocks = hal::ceil_div(n, kernels::kMomentBlock);
  const std::int64_t first = begin * kBlocks, last = std::min(blocks, end * kBlocks);
  for (std::int64_t block = first; block < last; ++block) {
    const std::int64_t at = block * kernels::kMomentBlock, count = std::min(kernels::kMomentBlock, n - at);
    const std::int64_t codes = block * kernels::kMomentBlockBytes;
    if (control[2] == 0.0f) {
      const auto copy = [](const void* from, void* to, std::int64_t bytes) {
        if (from != to) std::memcpy(to, from, static_cast<std::size_t>(bytes));
      };
      copy(args.at(0) + at, args.at(5) + at, count * static_cast<std::int64_t>(sizeof(float)));
      copy(m + codes, m_out + codes, kernels::kMomentBlockBytes);
      copy(v + codes, v_out + codes, kernels::kMomentBlockBytes);
      put_copy(at, count);
      continue;
    }
    update_block({args.at(0) + at, args.at(1) + at, m + codes, v + codes, args.at(5) + at, m_out + codes,
                  v_out + codes},
                 count, step);
    put_copy(at, count);
  }
}

void run_plain(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  run_adamw_8bit(args, begin, end, false);
}
void run_with_copy(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  run_adamw_8bit(args, begin, end, true);
}

// The moments are u8.
kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo&) {
  return call.inputs[0].elements() < std::int64_t{1} << 40
             ? kernels::Fit::yes()
             : kernels::Fit::no("a tensor of 2^40 elements or more");
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].elements();
  record_adamw(args, "adamw_8bit", hal::ceil_div(n, kBlocks * kernels::kMomentBlock));
}

}  // namespace

Ops adamw_8bit_ops() {
  return {{{"adamw_8bit", run_plain}, {"adamw_8bit_with_copy", run_with_copy}},
          {{"adamw_8bit", {low_precision_variant("one pass, a block at a time in cache", fit, encode)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
