// Weights in blocks (kernels/block_quantized/formats.h) to f32, many at a time.
#pragma once

#include <cstdint>

#include "kernels/block_quantized/formats.h"

namespace meshloom::backends::cpu {

// Elements [begin, begin + count) of the blocks from `row` on.
void dequantize_blocks(const kernels::block_quantized::Format& format, const std::uint8_t* row,
                       std::int64_t begin, std::int64_t count, float* into);

}  // namespace meshloom::backends::cpu
