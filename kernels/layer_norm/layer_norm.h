// y = (x - mean) / sqrt(var + eps) * w + b over the last dimension (Ba et al., 2016); biased variance.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "layer_norm": inputs x (..., N), w (N), b (N); attr eps (number); outputs y (..., N), mean (...), rstd (...). x and
//   y are of one float dtype, likewise dy and dx; the others f32.
// op "layer_norm_grad": inputs x, w, mean, rstd, dy, then residual (like dx) where the attr residual (flag) is set; outputs dx, the
//   gradient plus the residual, added in f32 and rounded once, dw (N), db (N). dx may share storage with dy or with the residual.
Tensor layer_norm(Tensor x, Tensor weight, Tensor bias, double eps);

}  // namespace meshloom::kernels
