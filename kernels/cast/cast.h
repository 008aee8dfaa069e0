// Changes the dtype of floats.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "cast"
// inputs: x (any shape), a float dtype. attrs: dtype (text): another float dtype.
// outputs: y, rounded to nearest, ties to even.
// Gradient: the cotangent, cast back; one that is f32 for an x in f32 is not rounded on the way.
Tensor cast(Tensor x, DType dtype);  // x itself where it has the dtype

// The dtype in which a gradient of `x` is wanted: f32 where x is a rounded copy of an f32 value, so that sums over the
// batch are not rounded to 16 bits before they reach it.
DType gradient_dtype(const Tensor& x);

}  // namespace meshloom::kernels
