// Sums in a fixed order.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "reduce_sum": input x, a float dtype; attr keep (integer): trailing dimensions that stay; output f32 of their shape, or (1) for
//   keep = 0. reduce_sum(x (M, N), keep 1) is the column sum (N).
// op "square_sum": input x f32; output (1): sum of x^2. Not differentiable.
Tensor reduce_sum(Tensor x, std::int64_t keep);
Tensor square_sum(Tensor x);

}  // namespace meshloom::kernels
