#include "kernels/block_quantized/formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "hal/error.h"
#include "hal/low_precision.h"

namespace meshloom::kernels::block_quantized {
namespace {

constexpr std::array<Format, 8> kFormats{{{FormatId::q8_0, "q8_0", 32, 34, 32, 128, false, true},
                                          {FormatId::q4_0, "q4_0", 32, 18, 32, 8, false, true},
                                          {FormatId::q4_1, "q4_1", 32, 20, 32, 0, true, true},
                                          {FormatId::q5_0, "q5_0", 32, 22, 32, 16, false, true},
                                          {FormatId::q5_1, "q5_1", 32, 24, 32, 0, true, true},
                                          {FormatId::q4_k, "q4_k", 256, 144, 32, 0, true, false},
                                          {FormatId::q5_k, "q5_k", 256, 176, 32, 0, true, false},
                                          {FormatId::q6_k, "q6_k", 256, 210, 16, 32, false, false}}};
constexpr std::int64_t kMaxElements = 256, kMaxGroups = 16;

bool has_fifth_bit(const Format& format) {
  return format.id == FormatId::q5_0 || format.id == FormatId::q5_1 || format.id == FormatId::q5_k;
}

float half_at(const std::uint8_t* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, 2);
  return hal::from_f16(bits);
}

bool put_half(float value, std::uint8_t* into) {
  const std::uint16_t bits = hal::to_f16(value);
  std::memcpy(into, &bits, 2);
  return (bits & 0x7fff) < 0x7c00;
}

// Signed bytes; the sign bit turned over makes them codes.
void unpack_bytes(const std::uint8_t* from, std::uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = from[i] ^ 128;
}

// Half of the elements in the low four bits, half in the high; `fifth`: a word with a fifth bit of each, or null.
void unpack_nibbles(const std::uint8_t* from, const std::uint8_t* fifth, std::uint8_t* codes) {
  std::uint32_t bits = 0;
  if (fifth != nullptr) std::memcpy(&bits, fifth, 4);
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<std::uint8_t>((from[i] & 15) | (bits >> i & 1) << 4);
    codes[i + 16] = static_cast<std::uint8_t>((from[i] >> 4) | (bits >> (i + 16) & 1) << 4);
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

// q4_k and, with a fifth bit for each element, q5_k.
void unpack_superblock(const std::uint8_t* from, bool wide, std::uint8_t* codes, float* scales,
                       float* minimums) {
  const float d = half_at(from), minimum = half_at(from + 2);
  const std::uint8_t *fifth = from + 16, *q = from + (wide ? 48 : 16);
  for (std::size_t group = 0; group < 8; ++group) {
    const ScaleAndMinimum both = packed(from + 4, group);
    scales[group] = d * static_cast<float>(both.scale);
    minimums[group] = -(minimum * static_cast<float>(both.minimum));
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint8_t byte = q[group / 2 * 32 + i];
      const int code = (group % 2 == 0 ? byte & 15 : byte >> 4) | (wide ? (fifth[i] >> group & 1) << 4 : 0);
      codes[group * 32 + i] = static_cast<std::uint8_t>(code);
    }
  }
}

void unpack_q6_k(const std::uint8_t* from, std::uint8_t* codes, float* scales) {
  const float d = half_at(from + 208);
  for (std::size_t i = 0; i < 16; ++i)
    scales[i] = d * static_cast<float>(static_cast<std::int8_t>(from[192 + i]));
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const std::uint8_t low = from[half * 64 + quarter % 2 * 32 + at], high = from[128 + half * 32 + at];
    codes[i] =
        static_cast<std::uint8_t>((quarter < 2 ? low & 15 : low >> 4) | (high >> (2 * quarter) & 3) << 4);
  }
}

// Of 32 numbers.
struct Range {
  float largest = 0, low, high;  // the number of the largest magnitude, the least and the greatest
};
Range range_of(const float* from) {
  Range range{0, from[0], from[0]};
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(from[i]) > std::fabs(range.largest)) range.largest = from[i];
    range.low = std::min(range.low, from[i]);
    range.high = std::max(range.high, from[i]);
  }
  return range;
}

// 0 where there is none: the scale is then 0 in f16 too.
float inverse_of(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0;
}

bool quantize_bytes(const float* from, std::uint8_t* into) {
  const float d = std::fabs(range_of(from).largest) / 127.0f, inverse = inverse_of(d);
  const bool fits = put_half(d, into);
  for (int i = 0; i < 32; ++i)
    into[2 + i] = static_cast<std::uint8_t>(
        static_cast<std::int8_t>(std::clamp(std::round(from[i] * inverse), -127.0f, 127.0f)));
  return fits;
}

// q4_0, q4_1, q5_0, q5_1: codes of 0 to `max_code`.
bool quantize_nibbles(bool has_minimum, int max_code, const float* from, std::uint8_t* into) {
  const Range range = range_of(from);
  const int middle = (max_code + 1) / 2;
  const float d = has_minimum ? (range.high - range.low) / static_cast<float>(max_code)
                              : range.largest / static_cast<float>(-middle),
              inverse = inverse_of(d), base = has_minimum ? range.low : 0,
              half = has_minimum ? 0.5f : static_cast<float>(middle) + 0.5f;
  bool fits = put_half(d, into);
  into += 2;
  if (has_minimum) {
    fits &= put_half(range.low, into);
    into += 2;
  }
  std::array<std::uint32_t, 32> codes;
  for (std::size_t i = 0; i < 32; ++i)
    codes[i] = static_cast<std::uint32_t>(
        std::clamp((from[i] - base) * inverse + half, 0.0f, static_cast<float>(max_code)));
  if (max_code == 31) {
    std::uint32_t fifth = 0;
    for (std::size_t i = 0; i < 32; ++i) fifth |= codes[i] >> 4 << i;
    std::memcpy(into, &fifth, 4);
    into += 4;
  }
  for (std::size_t i = 0; i < 16; ++i)
    into[i] = static_cast<std::uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  return fits;
}

}  // namespace

std::span<const Format> formats() { return kFormats; }

const Format& format_of(FormatId id) { return kFormats[static_cast<std::size_t>(id)]; }

const Format* find_format(std::string_view name) {
  const auto* found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& f) { return f.name == name; });
  return found == kFormats.end() ? nullptr : found;
}

std::string format_names() {
  std::string names;
  for (const Format& format : kFormats) names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

void unpack(const Format& format, const std::uint8_t* block, std::uint8_t* codes, float* scales,
            float* minimums) {
  if (!format.has_minimum) std::fill_n(minimums, format.elements / format.group, 0.0f);
  if (format.id == FormatId::q6_k) return unpack_q6_k(block, codes, scales);
  if (format.elements == 256) return unpack_superblock(block, has_fifth_bit(format), codes, scales, minimums);
  *scales = half_at(block);
  if (format.has_minimum) *minimums = half_at(block + 2);
  const std::uint8_t* rest = block + (format.has_minimum ? 4 : 2);
  if (format.id == FormatId::q8_0) return unpack_bytes(rest, codes);
  const bool wide = has_fifth_bit(format);
  unpack_nibbles(rest + (wide ? 4 : 0), wide ? rest : nullptr, codes);
}

void dequantize(const Format& format, const std::uint8_t* from, std::int64_t count, float* into) {
  std::uint8_t codes[kMaxElements];
  float scales[kMaxGroups], minimums[kMaxGroups];
  for (std::int64_t at = 0; at < count; at += format.elements, from += format.bytes) {
    unpack(format, from, codes, scales, minimums);
    for (std::int64_t i = 0; i < format.elements; ++i) {
      const std::int64_t group = i / format.group;
      const float value = scales[group] * static_cast<float>(codes[i] - format.offset);
      into[at + i] = format.has_minimum ? value + minimums[group] : value;
    }
  }
}

bool quantize(const Format& format, const float* from, std::int64_t count, std::uint8_t* into) {
  if (!format.is_written)
    throw hal::Error("block-quantized weights", "must be of a format that is written",
                     std::string(format.name));
  bool fits = true;
  for (std::int64_t at = 0; at < count; at += 32, from += 32, into += format.bytes) {
    if (!std::all_of(from, from + 32, [](float value) { return std::isfinite(value); })) {
      std::fill_n(into, format.bytes, std::uint8_t{0});
      fits = false;
    } else if (format.id == FormatId::q8_0) {
      fits &= quantize_bytes(from, into);
    } else {
      fits &= quantize_nibbles(format.has_minimum, has_fifth_bit(format) ? 31 : 15, from, into);
    }
  }
  return fits;
}

}  // namespace meshloom::kernels::block_quantized
