// Converts between f32 and the bits of f16 and bf16. Rounds to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "hal/dtype.h"

namespace meshloom::hal {

namespace detail {
// Rounds away the low `bits` of a number, ties to even.
inline std::uint32_t rounded(std::uint32_t number, int bits) {
  const std::uint32_t odd = number >> bits & 1;
  return (number + (1u << (bits - 1)) - 1 + odd) >> bits;
}
}  // namespace detail

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>(detail::rounded(bits, 16));
}

inline float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;  // zero or subnormal
  return sign ? -small : small;
}

inline std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<std::uint16_t>(sign | 0x7c00 | 0x200 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7c00);  // 2^16 and more
  if (magnitude < 0x38800000) {  // below 2^-14: subnormal, in steps of 2^-24; 0.5 + x has the same steps
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<std::uint16_t>(sign | detail::rounded(magnitude - (112u << 23), 13));
}

// Convert numbers of `dtype`, f16 or bf16, to f32 and from it; the f32 side has twice the bytes. Neither need be aligned.
inline void widen(DType dtype, std::span<const std::byte> from, std::span<std::byte> into) {
  for (std::size_t i = 0; i < from.size() / sizeof(std::uint16_t); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from.data() + i * sizeof bits, sizeof bits);
    const float value = dtype == DType::bf16 ? from_bf16(bits) : from_f16(bits);
    std::memcpy(into.data() + i * sizeof value, &value, sizeof value);
  }
}
inline void narrow(DType dtype, std::span<const std::byte> from, std::span<std::byte> into) {
  for (std::size_t i = 0; i < from.size() / sizeof(float); ++i) {
    float value;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    const std::uint16_t bits = dtype == DType::bf16 ? to_bf16(value) : to_f16(value);
    std::memcpy(into.data() + i * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace meshloom::hal
