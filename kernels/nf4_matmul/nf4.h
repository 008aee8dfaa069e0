// Four-bit NormalFloat (Dettmers et al., QLoRA, 2023): weights as one of 16 levels times the scale of their
// block. The levels are quantiles of a normal distribution, so that normal weights use them about equally.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "hal/math.h"

namespace meshloom::kernels::nf4 {

// By code. Eight of the positive side, seven of the negative and an exact zero, over the largest.
inline constexpr std::array<float, 16> kLevels{-1.0f,
                                               -0.6961928009986877f,
                                               -0.5250730514526367f,
                                               -0.39491748809814453f,
                                               -0.28444138169288635f,
                                               -0.18477343022823334f,
                                               -0.09105003625154495f,
                                               0.0f,
                                               0.07958029955625534f,
                                               0.16093020141124725f,
                                               0.24611230194568634f,
                                               0.33791524171829224f,
                                               0.44070982933044434f,
                                               0.5626170039176941f,
                                               0.7229568362236023f,
                                               1.0f};

// A value has the code that is the number of midpoints below it, each times the value's scale.
inline constexpr std::array<float, 15> kMidpoints = [] {
  std::array<float, 15> midpoints{};
  for (std::size_t i = 0; i < midpoints.size(); ++i) midpoints[i] = 0.5f * (kLevels[i] + kLevels[i + 1]);
  return midpoints;
}();
inline constexpr std::uint8_t kZero = 7;  // the code of the level 0

inline constexpr std::int64_t kBlock = 64;  // values that share a scale, as the paper has it

// A matrix (rows, columns) is stored as codes u8 (rows, row_bytes(columns)) and scales f32 (rows,
// blocks(columns)). Value c of a row is in byte c / 2, in its low half where c is even; rows end on a word of
// 32 bits, whose rest is not read. Its scale is number c / block of the row. Value = level * scale, rounded
// once to f32.
constexpr std::int64_t row_bytes(std::int64_t columns) { return (columns + 7) / 8 * 4; }
constexpr std::int64_t blocks(std::int64_t columns, std::int64_t block) {
  return hal::ceil_div(columns, block);
}

// The largest magnitude of each block. Throws Error for a value that is not finite.
void block_scales(const float* values, std::int64_t rows, std::int64_t columns, std::int64_t block,
                  float* scales);
// The nearest level of each value over its block's scale. The same bits on every machine, of both.
void pack(const float* values, const float* scales, std::int64_t rows, std::int64_t columns,
          std::int64_t block, std::uint8_t* codes);
void unpack(const std::uint8_t* codes, const float* scales, std::int64_t rows, std::int64_t columns,
            std::int64_t block, float* into);

// The scale of a block whose largest magnitude this is, which is that magnitude but for blocks of numbers below 2^-100, whose scale is
// 0, and of one that is not finite, whose scale is NaN. NaN stands for the largest magnitude of a block that has one.
inline float rounded_scale(float largest) {
  return largest < 0x1p-100f                            ? 0.0f
         : largest <= std::numeric_limits<float>::max() ? largest
                                                        : std::numeric_limits<float>::quiet_NaN();
}
// The code of a value in a block of that scale. One product and its rounding, so that every device finds the same.
inline std::uint8_t rounded_code(float value, float scale) {
  if (!(scale > 0)) return kZero;
  std::uint8_t code = 0;
  for (const float midpoint : kMidpoints) code += value > midpoint * scale;
  return code;
}

// Double quantisation: the scales of a row as codes u8 times a step f32 of that row, 255 of which are its
// largest scale.
void pack_scales(const float* scales, std::int64_t rows, std::int64_t per_row, std::uint8_t* codes,
                 float* steps);
void unpack_scales(const std::uint8_t* codes, const float* steps, std::int64_t rows, std::int64_t per_row,
                   float* into);

}  // namespace meshloom::kernels::nf4
