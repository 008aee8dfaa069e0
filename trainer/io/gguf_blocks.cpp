#include "trainer/io/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hal/error.h"
#include "hal/low_precision.h"
#include "trainer/io/float_convert.h"

namespace meshloom::trainer {
namespace {

float half_at(const std::uint8_t* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, 2);
  return hal::from_f16(bits);
}

// Blocks of 32: half of the elements in the low four bits, half in the high. With `wide` each has a fifth bit. x = d * q +
// m, where without a stored m it is d * (q - middle).
void nibbles(const std::uint8_t* from, bool has_minimum, bool wide, float* into) {
  const float d = half_at(from), m = has_minimum ? half_at(from + 2) : 0;
  from += has_minimum ? 4 : 2;
  std::uint32_t fifth = 0;
  if (wide) {
    std::memcpy(&fifth, from, 4);
    from += 4;
  }
  const int middle = has_minimum ? 0 : wide ? 16 : 8;
  for (std::size_t j = 0; j < 16; ++j) {
    const int low = (from[j] & 15) | static_cast<int>(fifth >> j & 1) << 4,
              high = (from[j] >> 4) | static_cast<int>(fifth >> (j + 16) & 1) << 4;
    const float a = d * static_cast<float>(low - middle), b = d * static_cast<float>(high - middle);
    into[j] = has_minimum ? a + m : a;
    into[j + 16] = has_minimum ? b + m : b;
  }
}

// The six bits of scale and minimum `j` of eight, which are packed into 12 bytes.
struct ScaleAndMinimum {
  int scale, minimum;
};
ScaleAndMinimum packed(const std::uint8_t* q, std::size_t j) {
  if (j < 4) return {q[j] & 63, q[j + 4] & 63};
  return {(q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4};
}

// Q4_K and, with a fifth bit for each element, Q5_K.
void superblock(const std::uint8_t* from, bool wide, float* into) {
  const float d = half_at(from), minimum = half_at(from + 2);
  const std::uint8_t *scales = from + 4, *fifth = from + 16, *q = from + (wide ? 48 : 16);
  for (std::size_t group = 0; group < 8; ++group) {
    const ScaleAndMinimum both = packed(scales, group);
    const float scale = d * static_cast<float>(both.scale), m = minimum * static_cast<float>(both.minimum);
    for (std::size_t l = 0; l < 32; ++l) {
      const std::uint8_t byte = q[group / 2 * 32 + l];
      int value = group % 2 == 0 ? byte & 15 : byte >> 4;
      if (wide) value |= (fifth[l] >> group & 1) << 4;
      const float product = scale * static_cast<float>(value);
      into[group * 32 + l] = product - m;
    }
  }
}

void q6_k(const std::uint8_t* from, float* into) {
  const float d = half_at(from + 208);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const std::uint8_t low = from[half * 64 + (quarter % 2) * 32 + l], high = from[128 + half * 32 + l];
    const int value = ((quarter < 2 ? low & 15 : low >> 4) | (high >> (2 * quarter) & 3) << 4) - 32;
    const float scale = d * static_cast<float>(static_cast<std::int8_t>(from[192 + i / 16]));
    into[i] = scale * static_cast<float>(value);
  }
}

bool quantize_q8_0(const float* from, std::uint8_t* into) {
  float largest = 0;
  bool finite = true;
  for (std::size_t i = 0; i < 32; ++i) {
    finite &= std::isfinite(from[i]);
    largest = std::max(largest, std::fabs(from[i]));
  }
  const float d = largest / 127.0f, inverse = d == 0 ? 0 : 1.0f / d;
  const std::uint16_t bits = hal::to_f16(d);
  std::memcpy(into, &bits, 2);
  if (!finite || (bits & 0x7fff) >= 0x7c00) return false;
  for (std::size_t i = 0; i < 32; ++i)
    into[2 + i] = static_cast<std::uint8_t>(
        static_cast<std::int8_t>(std::clamp(std::round(from[i] * inverse), -127.0f, 127.0f)));
  return true;
}

}  // namespace

void dequantize(const GgufBlock& block, std::span<const std::byte> from, std::span<float> into) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from.data());
  if (block.elements == 1) return to_f32(block.name, from, into);
  const std::size_t blocks = into.size() / static_cast<std::size_t>(block.elements);
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::uint8_t* at = bytes + i * static_cast<std::size_t>(block.bytes);
    float* to = into.data() + i * static_cast<std::size_t>(block.elements);
    if (block.name == "Q8_0") {
      const float d = half_at(at);
      for (std::size_t j = 0; j < 32; ++j)
        to[j] = d * static_cast<float>(static_cast<std::int8_t>(at[2 + j]));
    } else if (block.name == "Q6_K") {
      q6_k(at, to);
    } else if (block.name == "Q4_K" || block.name == "Q5_K") {
      superblock(at, block.name == "Q5_K", to);
    } else {
      nibbles(at, block.name.ends_with("_1"), block.name.starts_with("Q5"), to);
    }
  }
}

bool quantize(const GgufBlock& block, std::span<const float> from, std::span<std::byte> into) {
  if (block.elements == 1) return from_f32(block.name, from, into);
  if (block.name != "Q8_0") throw Error("GGUF", "must be a type that is written", std::string(block.name));
  bool fits = true;
  auto* to = reinterpret_cast<std::uint8_t*>(into.data());
  for (std::size_t i = 0; i < from.size() / 32; ++i) fits &= quantize_q8_0(&from[32 * i], to + 34 * i);
  return fits;
}

}  // namespace meshloom::trainer
