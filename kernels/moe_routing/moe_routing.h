// Rows that several groups share out between them: which row goes to which group, there and back. N rows are
// given to k groups each; the N k copies lie sorted by group, which is what grouped_matmul takes.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct ExpertGroups {
  Tensor slot, offsets;
};

// op "expert_capacity": input ids (N, k) i32; attrs groups (E), capacity, span (rows); output ids (N, k) i32:
// the same, but
//   -1 for every id outside [0, E) and for every one beyond the first `capacity` of its group among `span`
//   rows in succession. Within a span all first choices stand before all second choices, and so on; equal
//   choices in the order of the rows (Lepikhin et al., 2021).
// op "expert_groups": input ids (N, k) i32; attrs groups (E) and first (0 if there is none); outputs slot (N, k) i32: where each
// choice stands
//   when all are sorted by group, those of one group in the order (n, j), those outside [first, first + E) at the end; offsets
//   (E + 1) i32: group first + e holds the slots [offsets[e], offsets[e + 1]).
// Below, slot is a permutation of [0, N k):
// op "moe_dispatch": inputs x (N, D), slot (N, k), then weight (N, k) where attr `weighted` (flag); output y
// (N k, D):
//   y[slot[n, j]] = weight[n, j] x[n], without weights x[n].
// op "moe_combine": inputs y (N k, D), slot (N, k), then weight (N, k) where attr `weighted`; output (N, D):
// the sum over
//   j, in order, of weight[n, j] y[slot[n, j]], without weights of y[slot[n, j]].
// op "row_dot": inputs y (N k, D), x (N, D), slot (N, k); output (N, k): y[slot[n, j]] . x[n].
// x and y have any float dtype, which is also that of the rows that come out. Weights and dots are f32, and sums are
// formed in f32.
// Each of the three has gradients that the other two compute.
Tensor expert_capacity(Tensor ids, std::int64_t groups, std::int64_t capacity, std::int64_t span);
ExpertGroups expert_groups(Tensor ids, std::int64_t groups);
Tensor moe_dispatch(Tensor x, Tensor slot, Tensor weight = {});
Tensor moe_combine(Tensor y, Tensor slot, Tensor weight = {});
Tensor row_dot(Tensor y, Tensor x, Tensor slot);

// The attribute `first` of an expert_groups call.
std::int64_t first_group(const CallView& call);

}  // namespace meshloom::kernels
