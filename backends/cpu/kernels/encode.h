// What the variants of the CPU backend share: refusals, constants, and the recording of dispatches.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu/device/kernel.h"
#include "hal/binding.h"
#include "hal/math.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::cpu {

// The constants of a dispatch. Integers and doubles take two words each; ConstantReader reads them back in the same
// order.
class Constants {
 public:
  Constants& integer(std::int64_t value) { return bits(static_cast<std::uint64_t>(value)); }
  Constants& real(double value) { return bits(std::bit_cast<std::uint64_t>(value)); }
  Constants& dtype(hal::DType value) { return word(static_cast<std::uint32_t>(value)); }
  Constants& word(std::uint32_t value) {
    words_.push_back({.u = value});
    return *this;
  }
  const std::vector<hal::Word>& words() const { return words_; }

 private:
  Constants& bits(std::uint64_t value) {
    return word(static_cast<std::uint32_t>(value)).word(static_cast<std::uint32_t>(value >> 32));
  }
  std::vector<hal::Word> words_;
};

class ConstantReader {
 public:
  explicit ConstantReader(const KernelArgs& args) : at_(args.constants) {}
  std::int64_t integer() { return static_cast<std::int64_t>(bits()); }
  double real() { return std::bit_cast<double>(bits()); }
  float number() { return static_cast<float>(real()); }
  hal::DType dtype() { return static_cast<hal::DType>(word()); }
  std::uint32_t word() { return (at_++)->u; }

 private:
  std::uint64_t bits() {
    const std::uint64_t low = word();
    return low | std::uint64_t{word()} << 32;
  }
  const hal::Word* at_;
};

// The work items of a dispatch as the HAL counts them.
inline std::array<std::uint32_t, 3> grid(std::int64_t x, std::int64_t y, std::int64_t z) {
  return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
}

// Records one dispatch over `items` work items. The access of every binding is what the kernel declares.
inline void record_dispatch(const kernels::EncodeArgs& args, const std::string& kernel,
                            std::array<std::uint32_t, 3> items, std::span<const hal::Binding> bindings,
                            std::span<const hal::Word> constants) {
  hal::ExecutableSpec spec;
  spec.kernel = kernel;
  for (const hal::Binding& binding : bindings) spec.bindings.push_back(binding.access);
  spec.constant_words = static_cast<std::uint32_t>(constants.size());
  args.commands.dispatch(args.device.load(spec), items, bindings, constants, args.label);
}

// Records `items` work items of `kernel`; records nothing for none.
inline void record(const kernels::EncodeArgs& args, const char* kernel, std::int64_t items,
                   std::initializer_list<hal::Binding> bindings, const Constants& constants) {
  if (items > 0) record_dispatch(args, kernel, grid(items, 1, 1), bindings, constants.words());
}

// The first reason why a vectorized kernel does not take the call, or "": another element type, an empty tensor, or
// more items than a dispatch counts. With `low_precision`, 16-bit floats are accepted.
inline std::string refusal(const kernels::CallView& call, bool low_precision = false) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types) {
      if (!(low_precision && hal::is_low_precision(type.dtype)) && type.dtype != hal::DType::f32 &&
          type.dtype != hal::DType::i32)
        return "element type " + std::string(hal::to_string(type.dtype)) + " is not f32 or i32";
      if (type.elements() == 0) return "a tensor without elements";
      if (type.elements() >= std::int64_t{1} << 40) return "a tensor of 2^40 elements or more";
    }
  return {};
}

inline kernels::Fit fit_any(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(std::move(reason));
}

// For kernels that read and write 16-bit floats.
inline kernels::Fit fit_floats(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call, true);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(std::move(reason));
}

// The variant "simd", for any profile, whose rows have the same bits in any number of rows (Variant::row_exact).
inline kernels::Variant simd_variant(std::string about, decltype(kernels::Variant::fit) fit,
                                     decltype(kernels::Variant::encode) encode) {
  return {.name = "simd", .about = std::move(about), .fit = fit, .encode = encode, .row_exact = true};
}

// A simd_variant whose kernel reads and writes 16-bit floats.
inline kernels::Variant low_precision_variant(std::string about, decltype(kernels::Variant::fit) fit,
                                              decltype(kernels::Variant::encode) encode) {
  kernels::Variant variant = simd_variant(std::move(about), fit, encode);
  variant.low_precision = true;
  return variant;
}

// `rows` rows cut into at most `max_blocks` blocks of equal size, whose partial sums are added in order. Depends on
// the number of rows alone, so that the number of threads does not change the result.
struct RowBlocks {
  std::int64_t rows, size, count;
};
inline RowBlocks row_blocks(std::int64_t rows, std::int64_t max_blocks = 64, std::int64_t min_size = 8) {
  const std::int64_t size = std::max(min_size, hal::ceil_div(rows, max_blocks));
  return {rows, size, hal::ceil_div(rows, size)};
}

}  // namespace meshloom::backends::cpu
