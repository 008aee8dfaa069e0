// An elementwise expression as a short program over slots, each slot one block of floats: the form in which
// it travels to the kernel as constants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hal/device.h"
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
};

// One step; packed as op | dst << 8 | a << 16 | b << 24, and for select a second word c.
// Slots: first the inputs, then the constants, then the scratch slots, then the outputs.
struct Step {
  Code code;
  std::uint8_t dst = 0, a = 0, b = 0, c = 0;
};

enum class Extent : std::uint8_t { full, trailing, one };  // how an input is spread over the output

struct ElementwiseProgram {
  std::int64_t elements = 0;        // of each output
  std::vector<Extent> extents;      // per input
  std::vector<std::int64_t> sizes;  // elements per input
  std::vector<hal::DType> dtypes;   // per input, floats
  hal::DType result = hal::DType::f32;  // of the outputs
  std::vector<float> constants;
  std::uint32_t scratch = 0, outputs = 0;  // number of slots
  std::vector<Step> steps;

  std::uint32_t inputs() const { return static_cast<std::uint32_t>(extents.size()); }
  std::uint32_t first_constant() const { return inputs(); }
  std::uint32_t first_scratch() const { return inputs() + static_cast<std::uint32_t>(constants.size()); }
  std::uint32_t first_output() const { return first_scratch() + scratch; }
  std::uint32_t slots() const { return first_output() + outputs; }
  // Elements per block: the slots that hold copies stay in the first-level cache.
  std::int64_t block() const;
};

// Returns a program, or puts into `reason` why the call is too large for one.
std::optional<ElementwiseProgram> make_elementwise_program(const kernels::CallView& call,
                                                           std::string& reason);

std::vector<hal::Word> encode(const ElementwiseProgram& program);
ElementwiseProgram decode(const hal::Word* words);

}  // namespace meshloom::backends::cpu
