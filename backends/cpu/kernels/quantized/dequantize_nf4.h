// NF4 weights (kernels/nf4_matmul/nf4.h) to f32, many at a time.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// A matrix of NF4 weights, seen from `row` and `column` on.
struct Nf4Weights {
  const std::uint8_t* codes;
  const void* scales;                // f32, or u8 where there are steps
  const float* steps;                // of the quantized scales, by row; or null
  std::int64_t code_row, scale_row;  // bytes and scales from row to row
  std::int64_t block;                // values that share a scale: a multiple of 8
  std::int64_t row, column;

  Nf4Weights from(std::int64_t rows, std::int64_t columns) const {
    Nf4Weights part = *this;
    part.row += rows;
    part.column += columns;
    return part;
  }
  // The scale of block `number` of the row.
  float scale(std::int64_t number) const {
    const std::int64_t at = row * scale_row + number;
    return steps == nullptr ? static_cast<const float*>(scales)[at]
                            : static_cast<float>(static_cast<const std::uint8_t*>(scales)[at]) * steps[row];
  }
};
Nf4Weights nf4_weights(const std::uint8_t* codes, const void* scales, const float* steps,
                       std::int64_t columns, std::int64_t block);

// Writes the first `count` weights of the row.
void dequantize_nf4(const Nf4Weights& weights, std::int64_t count, float* into);

}  // namespace meshloom::backends::cpu
