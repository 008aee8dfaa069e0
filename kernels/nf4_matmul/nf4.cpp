#include "kernels/nf4_matmul/nf4.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "hal/error.h"

namespace meshloom::kernels::nf4 {
namespace {

// Codes rise with their levels: the number of midpoints below.
std::uint8_t nearest(float x) {
  std::uint8_t code = 0;
  for (const float midpoint : kMidpoints) code += x > midpoint;
  return code;
}

}  // namespace

void block_scales(const float* values, std::int64_t rows, std::int64_t columns, std::int64_t block,
                  float* scales) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t first = 0; first < columns; first += block) {
      float largest = 0;
      for (std::int64_t c = first; c < std::min(columns, first + block); ++c) {
        const float value = values[r * columns + c];
        if (!std::isfinite(value))
          throw hal::Error("four-bit weights", "must be finite", std::to_string(value));
        largest = std::max(largest, std::abs(value));
      }
      *scales++ = largest;
    }
}

void pack(const float* values, const float* scales, std::int64_t rows, std::int64_t columns,
          std::int64_t block, std::uint8_t* codes) {
  const std::int64_t bytes = row_bytes(columns), per_row = blocks(columns, block);
  std::fill_n(codes, rows * bytes, std::uint8_t{0});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const float scale = scales[r * per_row + c / block];
      const std::uint8_t code = nearest(scale > 0 ? values[r * columns + c] / scale : 0.0f);
      codes[r * bytes + c / 2] |= static_cast<std::uint8_t>(c % 2 ? code << 4 : code);
    }
}

void unpack(const std::uint8_t* codes, const float* scales, std::int64_t rows, std::int64_t columns,
            std::int64_t block, float* into) {
  const std::int64_t bytes = row_bytes(columns), per_row = blocks(columns, block);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const unsigned pair = codes[r * bytes + c / 2], code = c % 2 ? pair >> 4 : pair & 15u;
      into[r * columns + c] = kLevels[code] * scales[r * per_row + c / block];
    }
}

void pack_scales(const float* scales, std::int64_t rows, std::int64_t per_row, std::uint8_t* codes,
                 float* steps) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = scales + r * per_row;
    steps[r] = *std::max_element(row, row + per_row) / 255;
    for (std::int64_t b = 0; b < per_row; ++b)
      codes[r * per_row + b] = static_cast<std::uint8_t>(
          steps[r] > 0 ? std::clamp(std::nearbyint(row[b] / steps[r]), 0.0f, 255.0f) : 0.0f);
  }
}

void unpack_scales(const std::uint8_t* codes, const float* steps, std::int64_t rows, std::int64_t per_row,
                   float* into) {
  for (std::int64_t i = 0; i < rows * per_row; ++i)
    into[i] = static_cast<float>(codes[i]) * steps[i / per_row];
}

}  // namespace meshloom::kernels::nf4
