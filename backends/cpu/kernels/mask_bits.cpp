// Bitmasks from an expression, which runs over blocks of keys as elementwise expressions do; every value that is not 0
// sets a bit.
#include "kernels/mask_bits/mask_bits.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/elementwise/elementwise_program.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/mask_bits.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Bit k of word w is set where x[32 w + k] is not 0.
void PackBits(const float* x, std::int64_t words, std::uint32_t* bits) {
  const hn::CappedTag<float, 32> d;
  for (std::int64_t w = 0; w < words; ++w, x += 32) {
    std::uint64_t word = 0;
    for (std::size_t k = 0; k < 32; k += hn::Lanes(d)) {
      std::uint8_t bytes[8] = {};
      hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, x + k), hn::Zero(d)), bytes);
      std::uint64_t part;
      std::memcpy(&part, bytes, sizeof(part));
      word |= part << k;
    }
    bits[w] = static_cast<std::uint32_t>(word);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(PackBits);

namespace {

constexpr std::int64_t kQueries = 32;  // of one batch row, per work item
constexpr std::size_t kOwnWords = 8;   // of constants, before the program's

// Bindings, where there are positions, q_positions (b, s) and k_positions (b, t); then bits.
void run_mask_bits(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t s = constants.integer(), t = constants.integer(), blocks = constants.integer();
  const bool positions = constants.integer() != 0;
  const ElementwiseProgram program = decode(args.constants + kOwnWords);
  ElementwiseSlots slots(program);
  const auto pack_bits = HWY_DYNAMIC_DISPATCH(PackBits);
  const std::int64_t words = (t + 31) / 32, block = program.block();
  auto* bits = args.at<std::uint32_t>(positions ? 2 : 0);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t b = item / blocks, first = item % blocks * kQueries,
                       last = std::min(s, first + kQueries);
    for (std::int64_t start = 0; start < t; start += block) {
      const std::int64_t count = std::min(block, t - start), padded = hal::round_up(count, 64);
      for (std::int64_t k = 0; k < padded; ++k) slots.own(1)[k] = static_cast<float>(start + k);
      if (positions)
        for (std::int64_t k = 0; k < count; ++k)
          slots.own(1)[k] = static_cast<float>(args.at<const std::int32_t>(1)[b * t + start + k]);
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t p = positions ? args.at<const std::int32_t>(0)[b * s + i] : i + t - s;
        std::fill_n(slots.own(0), padded, static_cast<float>(p));
        std::uint32_t* into = bits + (b * s + i) * words + start / 32;
        const std::int64_t whole = (count + 31) / 32;
        pack_bits(slots.run(count), whole, into);
        if (count % 32 != 0) into[whole - 1] &= (std::uint32_t{1} << count % 32) - 1;
      }
    }
  }
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  expression_words(call.attrs.text("expr"), 2, kOwnWords, reason);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(std::move(reason));
}

void encode_call(const kernels::EncodeArgs& args) {
  const kernels::MaskBitsDims d = kernels::mask_bits_dims(args.call);
  std::string reason;
  const std::vector<hal::Word> expression =
      expression_words(args.call.attrs.text("expr"), 2, kOwnWords, reason);
  if (!reason.empty()) throw Error(args.label, "the call must fit the variant", reason);
  const std::int64_t blocks = hal::ceil_div(d.s, kQueries);
  Constants constants;
  constants.integer(d.s).integer(d.t).integer(blocks).integer(d.positions);
  for (const hal::Word word : expression) constants.word(word.u);
  if (d.positions)
    record(args, "mask_bits", d.b * blocks,
           {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])}, constants);
  else
    record(args, "mask_bits", d.b * blocks, {writes(args.outputs[0])}, constants);
}

}  // namespace

Ops mask_bits_ops() {
  return {{{"mask_bits", run_mask_bits}},
          {{"mask_bits",
            {simd_variant("interprets the expression over blocks of keys that stay in cache", fit,
                          encode_call)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
