#include "trainer/interop/convert.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace meshloom::trainer {
namespace {

float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = std::ldexp(static_cast<float>(fraction), -24);  // zero or subnormal
  return sign ? -small : small;
}

// Drops the low `bits` of a number, ties to even.
std::uint32_t rounded(std::uint32_t number, int bits) {
  const std::uint32_t odd = number >> bits & 1;
  return (number + (1u << (bits - 1)) - 1 + odd) >> bits;
}

std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7c00 | 0x200 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 2^16 and more
  if (magnitude < 0x38800000)  // below 2^-14: subnormal, in steps of 2^-24
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(
                                                 std::ldexp(std::bit_cast<float>(magnitude), 24))));
  return static_cast<std::uint16_t>(sign | rounded(magnitude - (112u << 23), 13));
}

std::uint16_t to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>(rounded(bits, 16));
}

std::uint16_t half_at(std::span<const std::byte> bytes, std::size_t i) {
  std::uint16_t word;
  std::memcpy(&word, bytes.data() + 2 * i, 2);
  return word;
}

}  // namespace

std::size_t float_bytes(std::string_view dtype) {
  if (dtype == "F32") return 4;
  return dtype == "F16" || dtype == "BF16" ? 2 : 0;
}

void widen(std::string_view dtype, std::span<const std::byte> from, std::span<float> into) {
  if (dtype == "F32") {
    std::memcpy(into.data(), from.data(), into.size_bytes());
  } else if (dtype == "BF16") {
    for (std::size_t i = 0; i < into.size(); ++i)
      into[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half_at(from, i)) << 16);
  } else {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = from_half(half_at(from, i));
  }
}

bool narrow(std::string_view dtype, std::span<const float> from, std::span<std::byte> into) {
  if (dtype == "F32") {
    std::memcpy(into.data(), from.data(), from.size_bytes());
    return true;
  }
  const bool half = dtype == "F16";
  const std::uint16_t infinity = half ? 0x7c00 : 0x7f80;
  bool fits = true;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t word = half ? to_half(from[i]) : to_bfloat(from[i]);
    fits &= !std::isfinite(from[i]) || (word & 0x7fff) < infinity;
    std::memcpy(into.data() + 2 * i, &word, 2);
  }
  return fits;
}

}  // namespace meshloom::trainer
