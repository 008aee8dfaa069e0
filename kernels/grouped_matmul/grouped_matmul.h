// A matrix product whose right side depends on the row: rows lie sorted by group, and every group has a
// matrix of its own (Gale et al., MegaBlocks, 2023). How many rows a group has is data, and may be none.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// Group e holds the rows [offsets[e], offsets[e + 1]); offsets (E + 1) i32 rise from 0 to at most R. Rows
// from offsets[E] on belong to no group. op "grouped_matmul": inputs x (R, K), w (E, K, N), with trans_b (E,
// N, K), offsets, then bias (E, N) where attr `bias`;
//   attrs trans_b, bias (flags); output (R, N): x[r] op(w[e]) + bias[e], zeros in rows of no group.
// op "grouped_outer": inputs a (R, M), b (R, N), offsets; output (E, M, N): A^T B of the rows of each group,
// zeros for a
//   group without rows.
// op "grouped_sum": inputs x (R, N), offsets; output (E, N): the sum of each group's rows. Not
// differentiable. The first two are closed under differentiation; a bias needs the third.
struct GroupedMatmulOptions {
  bool trans_b = false;
  Tensor bias;  // optional
};
Tensor grouped_matmul(Tensor x, Tensor w, Tensor offsets, const GroupedMatmulOptions& options = {});
Tensor grouped_outer(Tensor a, Tensor b, Tensor offsets);
Tensor grouped_sum(Tensor x, Tensor offsets);

// What a grouped_matmul call means, decoded once for every variant.
struct GroupedMatmulDims {
  std::int64_t groups, rows, n, k;
  bool trans_b, bias;
};
GroupedMatmulDims grouped_matmul_dims(const CallView& call);

}  // namespace meshloom::kernels
