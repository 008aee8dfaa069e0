// Rounding to eight-bit floats (Micikevicius et al., FP8 formats for deep learning, 2022), row by row, to
// train as hardware with such formats would.
#pragma once

#include <string>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// e4m3: 4 bits of exponent, 3 of fraction, at most 448. e5m2: 5 and 2, at most 57,344.
enum class EightBitFloat : std::uint8_t { e4m3, e5m2 };  // attr "format": their names
std::string_view to_string(EightBitFloat format);

// op "quantize_dequantize": x (M, K), float -> the same type. Each row is multiplied by the largest power of two with
// which the
//   format still holds it, rounded to the format, ties to even, and divided again. The same bits on every
//   device. A row without a magnitude of 2^-94 or more becomes zeros, one with a value above 1.75 2^127 or
//   not finite NaN. Gradient: straight through.
Tensor quantize_dequantize(Tensor x, EightBitFloat format);
// op "quantize_dequantize_grad": x (M, K), float -> a view of x. Its cotangent is rounded as quantize_dequantize does.
Tensor quantize_dequantize_grad(Tensor x, EightBitFloat format);

// What kernels need of a format, in powers of two that f32 stores: how many bits of f32's fraction go, and by
// how much the smallest normal number's exponent lies below the largest number's.
struct RoundingSteps {
  std::uint32_t dropped, span;
};
RoundingSteps rounding_steps(EightBitFloat format);
EightBitFloat rounding_format(const CallView& call);

// The exponent field that the format's largest numbers take in a row whose largest magnitude this is; 0 for a
// row of zeros, 255 for one that is not finite.
std::uint32_t top_exponent(float largest);
// `x` of such a row.
float round_to(RoundingSteps steps, std::uint32_t top, float x);

}  // namespace meshloom::kernels
