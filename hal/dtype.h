// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace meshloom::hal {

enum class DType : std::uint8_t { f32, f16, bf16, i32, u32, i8, u8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i8:
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// A 16-bit float: stored rounded, and usually converted to f32 for arithmetic.
constexpr bool is_low_precision(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// The distance between 1 and the next representable number; 0 for integers.
constexpr double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0.0;
  }
}

std::string_view to_string(DType dtype);
// Throws Error on an unknown name.
DType dtype_from_string(std::string_view name);

}  // namespace meshloom::hal
