// Eight-bit integer products: rows of both sides are quantised with a scale of their own, the sums are exact.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "quantize_rows": x (M, K), float -> q i8 (M, K), scales f32 (M), with x[m, k] about q[m, k] * scales[m].
//   inverse = n * 2^e is the largest with integers n <= 254 and e for which (largest magnitude of the row) *
//   inverse does not exceed 127: found by integer arithmetic, so that every device gets the same q, which is
//   x * inverse rounded to f32 and then to an integer, ties to even. scales = 1 / inverse. A row without a
//   magnitude of 2^-118 or more is zeros of scale 1; one with a value that is not finite has q = 0 and a NaN
//   as its scale. Not differentiable.
struct QuantizedRows {
  Tensor values, scales;
};
QuantizedRows quantize_rows(Tensor x);

// op "dequantize_rows": q i8 (M, K), scales f32 (M) -> y f32 (M, K), y[m, k] = q[m, k] * scales[m], rounded once: every device gets
// the same y, but for subnormal numbers. Not differentiable.
Tensor dequantize_rows(const QuantizedRows& rows);

// op "int8_matmul"
// inputs: a i8 (M, K), a_scales f32 (M), b i8 (N, K), b_scales f32 (N), then bias f32 (N) where attr `bias`,
// then x (M,
//   K) and w (N, K), float, where attr `through`.
// output: c (M, N) of the dtype that the attribute "dtype" names, else f32: (sum over k of a[m, k] b[n, k])
// a_scales[m]
//   b_scales[n] + bias[n]. The sum is an exact 32-bit integer: K is at most 133,144, values are -127 to 127.
// Gradient: straight through. With `through` it is that of x w^T, of which a and b are the rounded rows; the
// kernel does
//   not read x and w. Without there is none but the bias's.
struct Int8Options {
  Tensor bias;  // optional
  Tensor x, w;  // both or none
};
Tensor int8_matmul(const QuantizedRows& a, const QuantizedRows& b, const Int8Options& options = {});

struct Int8MatmulDims {
  std::int64_t m, n, k;
  int bias;  // input index, or -1
};
Int8MatmulDims int8_matmul_dims(const CallView& call);

// The inverse scale of a row whose largest magnitude has these bits; 0 for one that is zeros, NaN for one
// that is not finite.
float inverse_scale(float largest);

}  // namespace meshloom::kernels
