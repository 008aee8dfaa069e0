// Choosing a few columns of each row: the routing of a mixture of experts, and of anything else that is
// sparse by row.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "top_k": input x (M, N) f32; attr k (1 <= k <= N); output ids (M, k) i32: the columns of the k largest
// elements of
//   each row, largest first, equal ones by the smaller column. Not differentiable. Rows with a NaN give any
//   columns.
// op "gather": inputs x (M, N) f32, ids (M, k) i32; output (M, k) f32: x[m, ids[m, j]], 0 for an id outside [0,
// N). op "scatter_add": inputs v (M, k) f32, ids (M, k) i32; attr columns (N); output (M, N) f32: the sum of v[m, j]
// over j with
//   ids[m, j] = n, in the order of j; an id outside [0, N) adds nowhere. gather and scatter_add are each other's
//   gradients.
Tensor top_k(Tensor x, std::int64_t k);
Tensor gather(Tensor x, Tensor ids);
Tensor scatter_add(Tensor values, Tensor ids, std::int64_t columns);

}  // namespace meshloom::kernels
