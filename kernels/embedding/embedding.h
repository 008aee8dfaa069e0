// Rows of a table by id.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "embedding": inputs table (V, D) f32, ids (...) i32; output (..., D). An id outside [0, V) gives a zero row.
// op "embedding_grad": inputs ids (...), dy (..., D); attr rows (integer, V); output (V, D): the sum of dy over equal
//   ids in the order of the ids (deterministic), zero for rows that do not occur.
Tensor embedding(Tensor table, Tensor ids);

}  // namespace meshloom::kernels
