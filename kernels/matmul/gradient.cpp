#include "hal/error.h"
#include "kernels/cast/cast.h"
#include "kernels/matmul/parts.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::kernels::matmul_parts {

std::vector<Tensor> gradient(const GradientArgs& args) {
  const CallTypes types(args.builder.program(), args.call);
  const MatmulDims d = matmul_dims(types.view(args.call));
  std::vector<Tensor> result(args.inputs.size());
  const Tensor dc = args.cotangents[0];
  if (!dc) return result;
  if (d.activation != Activation::none)
    throw hal::Error("matmul",
                     "has no gradient through an activation: fuse activations after differentiation",
                     "activation '" + std::string(to_string(d.activation)) + "'");

  // With C = X Y, X = op(A), Y = op(B): dX = dC Y^T and dY = X^T dC, each written in A's and B's own layout.
  const Tensor a = args.inputs[0], b = args.inputs[1];
  const DType of_a = gradient_dtype(a), of_b = gradient_dtype(b);
  result[0] = d.trans_a ? matmul(b, dc, {.trans_a = d.trans_b, .trans_b = true, .dtype = of_a})
                        : matmul(dc, b, {.trans_b = !d.trans_b, .dtype = of_a});
  result[1] = d.trans_b ? matmul(dc, a, {.trans_a = true, .trans_b = d.trans_a, .dtype = of_b})
                        : matmul(a, dc, {.trans_a = !d.trans_a, .dtype = of_b});
  if (d.bias >= 0) result[static_cast<std::size_t>(d.bias)] = reduce_sum(dc, 1);
  if (d.residual >= 0) result[static_cast<std::size_t>(d.residual)] = dc;
  return result;
}

}  // namespace meshloom::kernels::matmul_parts
