// Any chain of elementwise arithmetic as one call; the composer fuses chains by composing expressions.
#pragma once

#include <vector>

#include "kernels/elementwise/expr.h"
#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "elementwise"
// inputs: x0 ... xn, floats, at most kMaxElementwiseOperands together with the outputs. Each has the output shape,
//   or a trailing part of it (a bias (N) on (M, N)), or one element in all.
// attrs: shape (list): of every output; expr (text): one expression per output, joined by ";", as read by
//   parse_expression ("mul(x0,sigmoid(x0));neg(x0)"); dtype (text): of the outputs, f32 when left out.
// outputs: one tensor of `shape` per expression; each may share storage with any input of that very type.
// Gradient: symbolic, one call for all inputs of the output shape; broadcast inputs get a reduce_sum behind it.
constexpr int kMaxElementwiseOperands = 8;
std::vector<Tensor> elementwise(const std::vector<Tensor>& inputs, const std::vector<Expr>& outputs,
                                Shape shape, DType dtype = DType::f32);
// The shape is the largest input's; the dtype that of the inputs, f32 where they differ.
Tensor elementwise(const std::vector<Tensor>& inputs, const Expr& output);

Tensor add(Tensor a, Tensor b);
Tensor mul(Tensor a, Tensor b);
Tensor scale(Tensor a, double factor);
Tensor constant(Builder& builder, double value, Shape shape, DType dtype = DType::f32);  // no inputs
Tensor silu(Tensor x);
Tensor gelu(Tensor x);
Tensor gelu_tanh(Tensor x);
Tensor relu(Tensor x);
Tensor swiglu(Tensor gate, Tensor up);  // silu(gate) * up

}  // namespace meshloom::kernels
