// A matrix product whose right side is chosen for each row by an index, in any order: how tokens of different adapters share a step
// (Chen et al., Punica, 2023). Rows that lie sorted by their matrix have grouped_matmul.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "gather_matmul" (mlx.core.gather_mm, with the index on the right side)
// inputs: x (M, K) of any float dtype; w (S, K, N), with trans_b (S, N, K), of any float dtype; indices (M) i32; then residual (M, N)
//   of x's dtype, where the attribute `residual` is set.
// attrs: trans_b, residual (flags).
// output: (M, N) of x's dtype, x[m] op(w[indices[m]]) + residual[m]; may share storage with the residual. An index below 0, or of
//   S or above, chooses no matrix: the row is that of the residual, bit for bit, or zeros.
// FLOPs: 2 M N K, as if every row had a matrix. It has no gradient.
struct GatherMatmulOptions {
  bool trans_b = false;
  Tensor residual;  // optional
};
Tensor gather_matmul(Tensor x, Tensor w, Tensor indices, const GatherMatmulOptions& options = {});

// What types of a call mean.
struct GatherMatmulDims {
  std::int64_t m, n, k, s;
  bool trans_b, residual;
};
GatherMatmulDims gather_matmul_dims(const CallView& call);

}  // namespace meshloom::kernels
