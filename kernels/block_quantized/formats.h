// Weights in blocks of small integers with their scales, as GGUF files store them. Source of the layouts: ggml's ggml-common.h and
// ggml-quants.c.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshloom::kernels::block_quantized {

enum class FormatId : std::uint8_t { q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k };

// A block is a run of one row. Its elements are codes of 0 to 255, in groups that share a scale and a minimum:
// value = scale * (code - offset) + minimum.
struct Format {
  FormatId id;
  std::string_view name;         // ggml's, in lower case
  std::int64_t elements, bytes;  // of a block
  std::int64_t group;            // elements of a group: 32, or 16
  int offset;
  bool has_minimum;  // false: the minimum is 0
  bool is_written;   // quantize() makes it from f32
};

std::span<const Format> formats();  // by id
const Format& format_of(FormatId id);
const Format* find_format(std::string_view name);  // or null
std::string format_names();                        // "q8_0, q4_0, ..."

// `columns` is a multiple of the block's elements.
constexpr std::int64_t row_bytes(const Format& format, std::int64_t columns) {
  return columns / format.elements * format.bytes;
}

// The codes of a block, in the order of its elements, and the scale and minimum of each of its groups. They are exact in f32: a scale
// or minimum is an f16 number, in q4_k, q5_k and q6_k times an integer of up to 8 bits.
void unpack(const Format& format, const std::uint8_t* block, std::uint8_t* codes, float* scales,
            float* minimums);

// `count` elements, whole blocks. value = scale * (code - offset), and then + minimum, rounds at most once. Ranges of a row may be read
// from any block on.
void dequantize(const Format& format, const std::uint8_t* from, std::int64_t count, float* into);

// Whole blocks of a format that is written, rounded as ggml does. Returns false when a value is not finite, or a block's scale or
// minimum becomes infinite.
bool quantize(const Format& format, const float* from, std::int64_t count, std::uint8_t* into);

}  // namespace meshloom::kernels::block_quantized
