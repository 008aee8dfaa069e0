// Softmax over the last dimension, and the logarithm of what it divides by.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct Softmax {
  Tensor y, lse;
};

// op "softmax": input x (..., N) f32; outputs y (..., N) = exp(x - lse), lse (...) = log sum exp of the row
// (x's
//   shape without the last dimension; at least one dimension must remain). y may share storage with x.
// op "softmax_grad": inputs y, dy, then dlse (...) where attr `lse` (flag); output dx (..., N) =
//   y (dy - sum(y dy) + dlse); shares storage with y or dy.
Softmax softmax(Tensor x);

}  // namespace meshloom::kernels
