// Matrix product with an epilogue.
//   C = act(op(A) op(B) + bias) + residual
#pragma once

#include <optional>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

enum class Activation : std::uint8_t { none, relu, silu, gelu, gelu_tanh };  // attr "activation": their names
std::string_view to_string(Activation activation);

struct MatmulOptions {
  bool trans_a = false, trans_b = false;
  Tensor bias;      // (N); optional
  Tensor residual;  // like C; optional
  Activation activation = Activation::none;
  std::optional<DType> dtype = {};  // of C; A's when not given
};

// op "matmul"
// inputs: A (M, K) or (G, M, K), with trans_a (K, M) / (G, K, M); B (K, N) or (G, K, N), with trans_b (N, K) /
//   (G, N, K); then bias (N) where attr `bias`, then residual (like C) where attr `residual`.
//   A and B have one float dtype, the residual has C's, the bias is f32.
// attrs: trans_a, trans_b, bias, residual (flags), activation (text, absent = "none"), dtype (text, absent = A's).
// output: C (M, N) or (G, M, N) of `dtype`. The residual may share storage with C.
// FLOPs: 2 G M N K. Gradient: two matmuls, a column sum for bias, identity for residual; an activation has
// none (the composer fuses activations only where the pre-activation is not needed).
Tensor matmul(Tensor a, Tensor b, const MatmulOptions& options = {});

// What the attributes and types of a matmul call mean, decoded once for every variant.
struct MatmulDims {
  std::int64_t g, m, n, k;
  bool trans_a, trans_b;
  int bias, residual;  // input index, or -1
  Activation activation;
};
MatmulDims matmul_dims(const CallView& call);

}  // namespace meshloom::kernels
