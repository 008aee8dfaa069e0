// y = x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang and Sennrich, 2019).
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "rms_norm": inputs x (..., N), w (N); attr eps (number); outputs y (..., N), rstd (...)
//   (x and y of one float dtype, likewise dy and dx; the others f32;
//   rstd has x's shape without the last dimension; at least one dimension must remain).
// op "rms_norm_grad": inputs x, w, rstd, dy, then residual (like dx) where the attr residual (flag) is set; outputs dx (..., N), the
//   gradient plus the residual, added in f32 and rounded once, and dw (N). dx may share storage with dy or with the residual.
Tensor rms_norm(Tensor x, Tensor weight, double eps);

}  // namespace meshloom::kernels
