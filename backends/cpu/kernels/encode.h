// What the variants of the CPU backend share: refusals, bindings, constants, and the recording of one
// dispatch.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "backends/cpu/device/kernel.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::cpu {

// Constants of a dispatch as whole numbers and doubles: two words each, read back in the same order.
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

inline hal::Binding reads(hal::Binding binding) {
  binding.access = hal::Access::read;
  return binding;
}
inline hal::Binding writes(hal::Binding binding) {
  binding.access = hal::Access::write;
  return binding;
}
inline hal::Binding reads_and_writes(hal::Binding binding) {
  binding.access = hal::Access::read_write;
  return binding;
}

// Records `items` work items of `kernel`; nothing for none.
inline void record(const kernels::EncodeArgs& args, const char* kernel, std::int64_t items,
                   std::initializer_list<hal::Binding> bindings, const Constants& constants) {
  if (items <= 0) return;
  hal::ExecutableSpec spec;
  spec.kernel = kernel;
  for (const hal::Binding& binding : bindings) spec.bindings.push_back(binding.access);
  spec.constant_words = static_cast<std::uint32_t>(constants.words().size());
  args.commands.dispatch(args.device.load(spec), {static_cast<std::uint32_t>(items), 1, 1}, bindings,
                         constants.words(), args.label);
}

// The first reason why a vectorised kernel cannot take the call: other element types, an empty tensor, or
// more items than a dispatch counts. Empty = none.
// With `narrow` the kernel takes 16-bit floats too.
inline std::string refusal(const kernels::CallView& call, bool narrow = false) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types) {
      if (!(narrow && hal::is_low_precision(type.dtype)) && type.dtype != hal::DType::f32 &&
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

// The same for kernels that read and write 16-bit floats.
inline kernels::Fit fit_floats(const kernels::CallView& call, const hal::DeviceInfo&) {
  std::string reason = refusal(call, true);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(std::move(reason));
}

// A variant of this backend for any profile.
inline kernels::Variant simd_variant(std::string op, std::string about,
                                     kernels::Fit (*fit)(const kernels::CallView&, const hal::DeviceInfo&),
                                     void (*encode)(const kernels::EncodeArgs&)) {
  kernels::Variant variant;
  variant.op = std::move(op);
  variant.backend = "cpu";
  variant.name = "simd";
  variant.rank = 10;
  variant.about = std::move(about);
  variant.fit = fit;
  variant.encode = encode;
  return variant;
}

// One whose kernel reads and writes 16-bit floats.
inline kernels::Variant low_precision_variant(std::string op, std::string about,
                                              kernels::Fit (*fit)(const kernels::CallView&,
                                                                  const hal::DeviceInfo&),
                                              void (*encode)(const kernels::EncodeArgs&)) {
  kernels::Variant variant = simd_variant(std::move(op), std::move(about), fit, encode);
  variant.low_precision = true;
  return variant;
}

// How `rows` rows are cut into at most `most` blocks of equal size whose partial sums are added in order.
// Depends on nothing but the number of rows.
struct RowBlocks {
  std::int64_t rows, size, count;
};
inline RowBlocks row_blocks(std::int64_t rows, std::int64_t most = 64, std::int64_t least_size = 8) {
  const std::int64_t size = std::max(least_size, (rows + most - 1) / most);
  return {rows, size, (rows + size - 1) / size};
}

}  // namespace meshloom::backends::cpu
