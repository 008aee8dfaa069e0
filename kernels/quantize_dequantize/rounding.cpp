#include <bit>
#include <limits>

#include "kernels/quantize_dequantize/quantize_dequantize.h"

namespace meshloom::kernels {

std::string_view to_string(EightBitFloat format) { return format == EightBitFloat::e4m3 ? "e4m3" : "e5m2"; }

// Exponents of e4m3 are -6 to 8, of e5m2 -14 to 15; the largest fraction of both is 1.75.
RoundingSteps rounding_steps(EightBitFloat format) {
  return format == EightBitFloat::e4m3 ? RoundingSteps{20, 14} : RoundingSteps{21, 29};
}

std::uint32_t top_exponent(float largest) {
  const auto bits = std::bit_cast<std::uint32_t>(largest) & 0x7fffffffu;
  const std::uint32_t exponent = bits >> 23;
  if (exponent == 255) return 255;
  if (exponent < 33) return 0;
  return (bits & 0x7fffffu) > 0x600000u ? exponent + 1 : exponent;
}

float round_to(RoundingSteps steps, std::uint32_t top, float x) {
  if (top == 255) return std::numeric_limits<float>::quiet_NaN();
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu, exponent = magnitude >> 23;
  if (top == 0) return std::bit_cast<float>(sign);
  const std::uint32_t least = top - steps.span;
  if (exponent >= least) {
    const std::uint32_t half = (1u << (steps.dropped - 1)) - 1, odd = magnitude >> steps.dropped & 1u;
    return std::bit_cast<float>(sign | ((magnitude + half + odd) >> steps.dropped << steps.dropped));
  }
  // Below the smallest normal number the steps stay as they are there.
  const std::uint32_t shift = steps.dropped + least - exponent;
  if (shift > 24) return std::bit_cast<float>(sign);
  const std::uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t whole = (fraction + (1u << (shift - 1)) - 1 + (fraction >> shift & 1u)) >> shift;
  const float step = std::bit_cast<float>((least + steps.dropped - 23) << 23);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(whole) * step));
}

}  // namespace meshloom::kernels
