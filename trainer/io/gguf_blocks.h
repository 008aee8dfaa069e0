// Converts the blocks of GGUF tensors to f32, and f32 to those that are written (kernels/block_quantized/formats.h).
#pragma once

#include <cstddef>
#include <span>

#include "kernels/block_quantized/formats.h"
#include "trainer/io/gguf.h"

namespace meshloom::trainer {

// The format of a type whose blocks have several elements; null for those of one.
const kernels::block_quantized::Format* block_format(const GgufBlock& block);

// `from` has whole blocks for into.size() elements. The arithmetic is that of ggml, in f32.
void dequantize(const GgufBlock& block, std::span<const std::byte> from, std::span<float> into);

// Writes F32, F16, BF16 or Q8_0; from.size() is a multiple of the block's elements. Numbers round to nearest, ties to even in
// F16 and BF16, and away from zero in Q8_0, as in ggml. Returns false when a finite value, or the scale of a block, becomes
// infinite, or when a block of Q8_0 has a value that is not finite.
bool quantize(const GgufBlock& block, std::span<const float> from, std::span<std::byte> into);

}  // namespace meshloom::trainer
