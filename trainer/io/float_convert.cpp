#include "trainer/io/float_convert.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "hal/low_precision.h"

namespace meshloom::trainer {

std::size_t float_bytes(std::string_view dtype) {
  if (dtype == "F32") return 4;
  return dtype == "F16" || dtype == "BF16" ? 2 : 0;
}

void to_f32(std::string_view dtype, std::span<const std::byte> from, std::span<float> into) {
  if (dtype == "F32") {
    std::memcpy(into.data(), from.data(), into.size_bytes());
  } else {
    hal::widen(dtype == "BF16" ? hal::DType::bf16 : hal::DType::f16, from.first(2 * into.size()),
               std::as_writable_bytes(into));
  }
}

bool from_f32(std::string_view dtype, std::span<const float> from, std::span<std::byte> into) {
  if (dtype == "F32") {
    std::memcpy(into.data(), from.data(), from.size_bytes());
    return true;
  }
  const bool half = dtype == "F16";
  const std::uint16_t infinity = half ? 0x7c00 : 0x7f80;
  bool fits = true;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t word = half ? hal::to_f16(from[i]) : hal::to_bf16(from[i]);
    fits &= !std::isfinite(from[i]) || (word & 0x7fff) < infinity;
    std::memcpy(into.data() + 2 * i, &word, 2);
  }
  return fits;
}

}  // namespace meshloom::trainer
