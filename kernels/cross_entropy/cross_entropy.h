// Softmax cross-entropy per row and its gradient, which overwrites the logits.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct CrossEntropy {
  Tensor loss, valid, lse;
};

// What a call's attributes come to: the logits are columns [first, first + V) of `classes`.
struct CrossEntropyColumns {
  std::int64_t first = 0, classes = 0;
  bool part = false;
};
CrossEntropyColumns cross_entropy_columns(const CallView& call);

// op "cross_entropy": inputs logits (N, V), a float dtype, targets (N) i32; a negative target is ignored, and none is V
// or more. outputs: loss (N) f32 =
//   lse - logits[target], 0 where ignored; valid (N) f32: 1, or 0 where ignored; lse (N) f32: log sum exp of
//   the row, 0 where ignored.
// op "cross_entropy_grad": inputs logits, targets, lse, dloss (N); output dlogits (N, V), like the logits, =
//   (softmax - onehot(target)) * dloss, 0 in ignored rows; shares storage with the logits.
// With attrs first, classes (integers) the logits are the columns [first, first + V) of so many classes, and targets count from
//   the first of all. lse is that of these columns, and loss is only what the target's logit adds: -logits[target - first], 0
//   where it is in other columns or ignored. In the gradient lse is that of all columns, and onehot has those here.
// Gradient: one cross_entropy_grad; two where lse has a cotangent.
CrossEntropy cross_entropy(Tensor logits, Tensor targets);

}  // namespace meshloom::kernels
