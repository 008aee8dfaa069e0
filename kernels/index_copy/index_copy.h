// Writes rows into a pool at given places, as a cache of keys and values takes those of new tokens.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "index_copy" (torch.Tensor.index_copy_, over pages)
// inputs: pool (P, page, ...features), x (N, ...features), each of any float dtype, or both i8, or both u8; slots (N) i32.
// output: the pool, of its type; may share its storage, so that only the rows that are named are touched. Row slots[n] of the
//   pool, counted over its P page rows, becomes x[n], rounded to the pool's dtype (to nearest, ties to even). A slot below
//   0, or of P page or above, writes nothing: padding. Equal slots are an error of the caller's: which of the rows stays is not said.
// It has no gradient.
Tensor index_copy(Tensor pool, Tensor x, Tensor slots);

// What types of a call mean.
struct IndexCopyDims {
  std::int64_t slots, rows, width;  // P page, N, and the product of the features
};
IndexCopyDims index_copy_dims(const CallView& call);

}  // namespace meshloom::kernels
