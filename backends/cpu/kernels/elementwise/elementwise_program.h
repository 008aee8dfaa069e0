// An elementwise expression as a short program over slots, each of which holds one block of floats. The kernel gets it
// as constants.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/math.h"
#include "kernels/elementwise/expression.h"
#include "kernels/program/types.h"

namespace meshloom::backends::cpu {

enum class Code : std::uint8_t {
  copy,  // dst = a
  add,
  sub,
  mul,
  div,
  max,
  min,
  gt,
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  sigmoid,
  erf,
  is_finite,
  select,
  eq,
  floor,
  mod,
};

// One step; packed as op | dst << 8 | a << 16 | b << 24, and for select a second word c.
// Slots: first the inputs, then the constants, then the scratch slots, then the outputs.
struct Step {
  Code code;
  std::uint8_t dst = 0, a = 0, b = 0, c = 0;
};

enum class Extent : std::uint8_t { full, trailing, one };  // how an input is broadcast over the output

struct ElementwiseProgram {
  std::int64_t elements = 0;            // of each output
  std::vector<Extent> extents;          // per input
  std::vector<std::int64_t> sizes;      // elements per input
  std::vector<hal::DType> dtypes;       // per input, floats
  hal::DType result = hal::DType::f32;  // of the outputs
  std::vector<float> constants;
  std::uint32_t scratch = 0, outputs = 0;  // number of slots
  std::vector<Step> steps;

  std::uint32_t inputs() const { return static_cast<std::uint32_t>(extents.size()); }
  std::uint32_t first_constant() const { return inputs(); }
  std::uint32_t first_scratch() const { return inputs() + static_cast<std::uint32_t>(constants.size()); }
  std::uint32_t first_output() const { return first_scratch() + scratch; }
  std::uint32_t slots() const { return first_output() + outputs; }
  // Elements per block, so that all slots stay in the L1 cache.
  std::int64_t block() const;
};

// The program of a call. Where the call is too large for one, the result is empty and `reason` says why.
std::optional<ElementwiseProgram> make_elementwise_program(const kernels::CallView& call,
                                                           std::string& reason);

// Likewise for an expression over `inputs` inputs, none of which is broadcast.
std::optional<ElementwiseProgram> make_elementwise_program(const std::string& expression, std::size_t inputs,
                                                           std::string& reason);

// The words of that program, for a kernel whose constants begin with `before` other words. Where they are too many,
// `reason` says so and the result must not be used.
std::vector<hal::Word> expression_words(const std::string& expression, std::size_t inputs, std::size_t before,
                                        std::string& reason);

// Runs every step on `count` elements of the slots at `at`; `count` is a multiple of the vector lanes.
void run_steps(const ElementwiseProgram& program, float* const* at, std::size_t count);

std::vector<hal::Word> encode(const ElementwiseProgram& program);
ElementwiseProgram decode(const hal::Word* words);

// Memory for a block of every slot, with the constants filled in. The program must outlive it.
class ElementwiseSlots {
 public:
  explicit ElementwiseSlots(const ElementwiseProgram& program);

  float* own(std::uint32_t slot) { return memory_ + slot * program_.block(); }
  // Where the steps read and write a slot; its own memory unless it is set to another address.
  float*& at(std::uint32_t slot) { return at_[slot]; }
  // Runs the program on `count` elements, at most one block, and returns its only output. The caller has filled the
  // inputs' own memory up to the next multiple of 64.
  const float* run(std::int64_t count) {
    run_steps(static_cast<std::size_t>(hal::round_up(count, 64)));
    return at(program_.first_output());
  }
  void run_steps(std::size_t count) { cpu::run_steps(program_, at_.data(), count); }

 private:
  const ElementwiseProgram& program_;
  alignas(64) float memory_[256 * 64];
  std::array<float*, 256> at_{};
};

}  // namespace meshloom::backends::cpu
