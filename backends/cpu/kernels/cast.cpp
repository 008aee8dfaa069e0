#include "backends/cpu/kernels/cast.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/cast.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/stored_floats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using D = hn::ScalableTag<float>;

template <hal::DType DTYPE>
void ToF32(const std::uint16_t* from, std::int64_t count, float* into) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Stored<DTYPE>::load(d, from + i), d, into + i);
  for (; i < count; ++i) into[i] = Stored<DTYPE>::load_one(from[i]);
}

template <hal::DType DTYPE>
void FromF32(const float* from, std::int64_t count, std::uint16_t* into) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) Stored<DTYPE>::store(d, hn::LoadU(d, from + i), into + i);
  for (; i < count; ++i) into[i] = Stored<DTYPE>::store_one(from[i]);
}

void Bf16ToF32(const std::uint16_t* from, std::int64_t count, float* into) {
  ToF32<hal::DType::bf16>(from, count, into);
}
void F16ToF32(const std::uint16_t* from, std::int64_t count, float* into) {
  ToF32<hal::DType::f16>(from, count, into);
}
void F32ToBf16(const float* from, std::int64_t count, std::uint16_t* into) {
  FromF32<hal::DType::bf16>(from, count, into);
}
void F32ToF16(const float* from, std::int64_t count, std::uint16_t* into) {
  FromF32<hal::DType::f16>(from, count, into);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(Bf16ToF32);
HWY_EXPORT(F32ToBf16);
HWY_EXPORT(F16ToF32);
HWY_EXPORT(F32ToF16);

void widen(const void* from, hal::DType dtype, std::int64_t count, float* into) {
  const auto* halves = static_cast<const std::uint16_t*>(from);
  if (dtype == hal::DType::bf16)
    HWY_DYNAMIC_DISPATCH(Bf16ToF32)(halves, count, into);
  else if (dtype == hal::DType::f16)
    HWY_DYNAMIC_DISPATCH(F16ToF32)(halves, count, into);
  else
    std::memcpy(into, from, static_cast<std::size_t>(count) * sizeof(float));
}

void narrow(const float* from, std::int64_t count, hal::DType dtype, void* into) {
  auto* halves = static_cast<std::uint16_t*>(into);
  if (dtype == hal::DType::bf16)
    HWY_DYNAMIC_DISPATCH(F32ToBf16)(from, count, halves);
  else if (dtype == hal::DType::f16)
    HWY_DYNAMIC_DISPATCH(F32ToF16)(from, count, halves);
  else
    std::memcpy(into, from, static_cast<std::size_t>(count) * sizeof(float));
}

namespace {

constexpr std::int64_t kBlock = 4096;

// Bindings x, y; an item is a block.
void run_cast(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t elements = constants.integer();
  const hal::DType from = constants.dtype(), to = constants.dtype();
  alignas(64) float wide[kBlock];
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t start = block * kBlock, count = std::min(kBlock, elements - start);
    const auto* x = args.at<const std::byte>(0) + start * static_cast<std::int64_t>(hal::size_of(from));
    auto* y = args.at<std::byte>(1) + start * static_cast<std::int64_t>(hal::size_of(to));
    if (to == hal::DType::f32) {
      widen(x, from, count, reinterpret_cast<float*>(y));
    } else if (from == hal::DType::f32) {
      narrow(reinterpret_cast<const float*>(x), count, to, y);
    } else {
      widen(x, from, count, wide);
      narrow(wide, count, to, y);
    }
  }
}

kernels::Fit fit_cast(const kernels::CallView& call, const hal::DeviceInfo&) {
  if (call.inputs[0].elements() >= std::int64_t{1} << 40)
    return kernels::Fit::no("a tensor has 2^40 elements or more");
  return kernels::Fit::yes();
}

void encode_cast(const kernels::EncodeArgs& args) {
  const std::int64_t elements = args.call.inputs[0].elements();
  record(args, "cast", hal::ceil_div(elements, kBlock), {reads(args.inputs[0]), writes(args.outputs[0])},
         Constants().integer(elements).dtype(args.call.inputs[0].dtype).dtype(args.call.outputs[0].dtype));
}

}  // namespace

Ops cast_ops() {
  return {{{"cast", run_cast}},
          {{"cast", {low_precision_variant("one pass, vectorized", fit_cast, encode_cast)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
