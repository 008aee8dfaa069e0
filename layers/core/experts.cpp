#include "layers/core/experts.h"

#include "kernels/grouped_matmul/grouped_matmul.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::layers {

Tensor project(Context& ctx, Tensor x, Tensor weight, Tensor bias) {
  if (weight.type().rank() != 3) return kernels::matmul(x, weight, {.trans_b = true, .bias = bias});
  const Tensor offsets = ctx.get<ExpertRows>("the rows of each expert").offsets;
  return kernels::grouped_matmul(x, weight, offsets, {.trans_b = true, .bias = bias});
}

}  // namespace meshloom::layers
