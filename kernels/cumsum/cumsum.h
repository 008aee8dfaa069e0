// Sums of all elements up to each one, along the last dimension (torch.cumsum).
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "cumsum": input x (..., N) f32; attr `reverse` (flag): sums from the end; output y (..., N), y[i] = x[0] + ... + x[i],
// or x[i] + ... + x[N-1]. y may share storage with x. Gradient: the sums of the cotangents the other way round.
Tensor cumsum(Tensor x, bool reverse = false);

}  // namespace meshloom::kernels
