// Rows of a table by id.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "embedding": inputs table (V, D), a float dtype, ids (...) i32; attr dtype (text): of the output (..., D), f32 when
//   left out. An id outside [0, V) gives a zero row.
// op "embedding_grad": inputs ids (...), dy (..., D), a float dtype; attr rows (integer, V); output (V, D) f32: the sum of dy over equal
//   ids in the order of the ids (deterministic), zero for rows that do not occur. With attr residual (flag) the sum is added to
//   the input residual (V, D) f32, in place where the output shares its storage: rows that do not occur are not touched then.
Tensor embedding(Tensor table, Tensor ids);

}  // namespace meshloom::kernels
