// Product with a matrix of four-bit weights (nf4.h), which are constants: they are packed once and never
// learn.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "nf4_matmul"
// inputs: x (M, K); the weights W (R, C) as codes u8 (R, row_bytes(C)) and scales f32 (R, blocks(C, block)),
// or, where
//   attr `double`, scales u8 and steps f32 (R): scale = code * step; then bias (N) f32 where attr `bias`, then residual
//   (M, N) of x's dtype where attr `residual`.
// attrs: columns (C), block (values that share a scale, a multiple of 8), double, trans_b, bias, residual (flags).
// output: y (M, N) of x's dtype: x W^T + bias + residual with trans_b (K = C, N = R), x W + bias + residual without (K = R,
//   N = C). The residual may share storage with y.
// A variant may round W to the dtype of x, where that has 16 bits, as a product with a dequantized copy does.
// Gradient: of x, by the same op the other way round, of the bias, and identity for the residual.
struct Nf4Options {
  std::int64_t columns, block;
  bool trans_b = false;
  Tensor steps;          // of the scales; optional
  Tensor bias;           // optional
  Tensor residual = {};  // like y; optional
};
Tensor nf4_matmul(Tensor x, Tensor codes, Tensor scales, const Nf4Options& options);

// op "nf4_unpack"
// inputs: W as codes u8 (..., R, row_bytes(C)) and scales (..., R, blocks(C, block)), f32, or where attr `double`
//   u8 with steps f32 (..., R); at most one dimension in front. attrs: columns, block, double,
//   dtype (of W; f32 without it).
// output: W (..., R, C), in 16 bits rounded from f32 as `cast` rounds. Not differentiable. For what has no product with packed
//   weights of its own.
Tensor nf4_unpack(Tensor codes, Tensor scales, const Nf4Options& options);  // columns, block, steps

// op "nf4_pack"
// inputs: x (M, K), float. attrs: block, a multiple of 8.
// outputs: codes u8 (M, row_bytes(K)), whose bits behind the row's end are 0, and scales f32 (M, blocks(K, block)), by rounded_scale()
//   and rounded_code() of nf4.h: x[m, k] is about level times scale, and exactly the same on every device. A block of tiny numbers
//   becomes zeros, one with a value that is not finite NaN. Not differentiable.
struct Nf4Rows {
  Tensor codes, scales;
};
Nf4Rows nf4_pack(Tensor x, std::int64_t block);

struct Nf4MatmulDims {
  std::int64_t m, n, k;
  std::int64_t rows, columns, block;  // of W
  bool trans_b;
  int steps, bias, residual;  // input index, or -1
};
Nf4MatmulDims nf4_matmul_dims(const CallView& call);

struct Nf4UnpackDims {
  std::int64_t rows, columns, block;
  bool twice;  // scales are codes too
};
Nf4UnpackDims nf4_unpack_dims(const CallView& call);

struct Nf4PackDims {
  std::int64_t rows, columns, block;
};
Nf4PackDims nf4_pack_dims(const CallView& call);

}  // namespace meshloom::kernels
