// Weights as GGUF files store them (formats.h), multiplied as they are: a product takes the time of reading so many bytes. The weights are
// constants: they never learn. W (N, K) is u8 (N, row_bytes(format, K)), the bytes of a tensor of the file; K is a multiple of the
// format's block. Scales of a file that are not finite give what f32 arithmetic gives.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/block_quantized/formats.h"
#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct BlockQuantizedOptions {
  std::string format;                 // of formats.h
  std::int64_t columns = 0;           // K
  std::string activations = "float";  // or "int8"; of block_quantized_matmul
  Tensor bias;                        // optional; likewise
  Tensor residual = {};               // like y, optional; likewise
};

// op "block_quantized_matmul"
// inputs: x (M, K) float, w u8 (N, row_bytes), then bias f32 (N) where attr `bias`, then residual (M, N) of x's dtype where attr
//   `residual`.
// attrs: format (text), columns (K), activations (text, "float" when left out), bias, residual (flags).
// output: y (M, N) of x's dtype: x W^T + bias + residual, which may share storage with the residual. With activations "float" a
//   variant may round W to the dtype of x, where that has 16
//   bits, as a product with a dequantized copy does. With activations "int8" each run of 32 columns of x is first rounded to 8 bits as
//   quantize_rows rounds a row (kernels/int8_matmul), which every device does alike: sums of products of integers are exact within a
//   group of the format, and groups are added in order of k.
// Gradient: of x, through the rounding as if it were not there, of the bias, and identity for the residual.
Tensor block_quantized_matmul(Tensor x, Tensor w, const BlockQuantizedOptions& options);

// op "block_dequantize": w u8 (..., N, row_bytes), at most one dimension in front -> f32 (..., N, K). attrs: format, columns. Not
//   differentiable. For what has no product with such weights of its own.
Tensor block_dequantize(Tensor w, const BlockQuantizedOptions& options);

// op "block_quantized_embedding": w u8 (V, row_bytes), ids (...) i32 -> y (..., K): rows of W by id. attrs: format, columns; dtype (text): of y,
//   f32 when left out; first (integer): ids count from it, as in embedding (kernels/embedding). An id outside of the table gives a
//   zero row. Not differentiable.
Tensor block_quantized_embedding(Tensor w, Tensor ids, const BlockQuantizedOptions& options);

constexpr std::int64_t kActivationBlock = 32;  // columns of x that share a scale

struct BlockQuantizedDims {
  const block_quantized::Format* format;
  std::int64_t m, n, k;
  bool int8;
  int bias, residual;  // input index, or -1
};
BlockQuantizedDims block_quantized_dims(const CallView& call);

// The format of a call of any of these ops.
const block_quantized::Format& block_format(const CallView& call);

}  // namespace meshloom::kernels
