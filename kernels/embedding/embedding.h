// Rows of a table by id.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "embedding": inputs table (V, D), a float dtype, ids (...) i32; attr dtype (text): of the output (..., D), f32 when
//   left out. An id outside [0, V) gives a zero row. With attr first (integer) the table is rows [first, first + V) of a larger one:
//   ids count from the first row of that, and those of other rows give zero rows.
// op "embedding_grad": inputs ids (...), dy (..., D), a float dtype; attr rows (integer, V), first as above; output (V, D) f32: the sum of dy over equal
//   ids in the order of the ids (deterministic), zero for rows that do not occur. With attr residual (flag) the sum is added to
//   the input residual (V, D) f32, in place where the output shares its storage: rows that do not occur are not touched then.
Tensor embedding(Tensor table, Tensor ids);

// The attribute `first` of either op; 0 when left out.
std::int64_t embedding_first(const CallView& call);

}  // namespace meshloom::kernels
