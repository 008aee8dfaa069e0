// A matrix product whose right side depends on the row: rows lie sorted by group, and every group has a
// matrix of its own (Gale et al., MegaBlocks, 2023). How many rows a group has is data, and may be none.
#pragma once

#include <optional>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// Group e holds the rows [offsets[e], offsets[e + 1]); offsets (E + 1) i32 rise from 0 to at most R. Rows
// from offsets[E] on belong to no group.
// op "grouped_matmul": inputs x (R, K) and w (E, K, N), with trans_b (E, N, K), of one float dtype, offsets, then bias (E, N) f32
//   where attr `bias`; attrs trans_b, bias (flags), dtype (of the output; absent: that of x); output (R, N): x[r] op(w[e]) +
//   bias[e], zeros in rows of no group.
// op "grouped_outer": inputs a (R, M) and b (R, N) of one float dtype, offsets; attr dtype, as above; output (E, M, N): A^T B of the
//   rows of each group, zeros for a group without rows.
// op "grouped_sum": inputs x (R, N) of any float dtype, offsets; output (E, N) f32: the sum of each group's rows. Not
//   differentiable.
// The first two are closed under differentiation; a bias needs the third.
struct GroupedMatmulOptions {
  bool trans_b = false;
  Tensor bias;                 // optional
  std::optional<DType> dtype;  // of the output, where it is not that of x
};
Tensor grouped_matmul(Tensor x, Tensor w, Tensor offsets, const GroupedMatmulOptions& options = {});
Tensor grouped_outer(Tensor a, Tensor b, Tensor offsets, std::optional<DType> dtype = {});
Tensor grouped_sum(Tensor x, Tensor offsets);

// What a grouped_matmul call means, decoded once for every variant.
struct GroupedMatmulDims {
  std::int64_t groups, rows, n, k;
  bool trans_b, bias;
};
GroupedMatmulDims grouped_matmul_dims(const CallView& call);

}  // namespace meshloom::kernels
