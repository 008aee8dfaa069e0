// AdamW (Loshchilov and Hutter, 2019): decoupled weight decay, bias correction.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0;
};
struct AdamWResult {
  Tensor parameter, m, v;
};

// op "adamw"
// inputs: p, g, m, v (all of one shape, f32), control (4) f32 = [lr, gradient scale s, apply (0 or 1), step t >= 1].
// attrs: beta1, beta2, eps, weight_decay; dtype (text, optional): bf16 or f16.
// outputs: p', m', v'; each may share storage with p, m, v. Where apply = 0 they are copies, whatever g holds. Else
//   g' = s g;  m' = b1 m + (1-b1) g';  v' = b2 v + (1-b2) g'^2
//   p' = p - lr (m'/(1-b1^t) / (sqrt(v'/(1-b2^t)) + eps) + weight_decay p)
// With `dtype` there is one output more, the low-precision copy of the parameter that the next step multiplies by: p' rounded to
// nearest, ties to even, to the bit what "cast" makes of it, also where apply = 0.
AdamWResult adamw(Tensor p, Tensor g, Tensor m, Tensor v, Tensor control, const AdamWOptions& options);

}  // namespace meshloom::kernels
