// Access to a weight matrix that a layer stores quantised, for an adapter around the layer that computes with the
// matrix.
#pragma once

#include "layers/core/context.h"

namespace meshloom::layers {

// W (output, input) is the dequantised weight. Below a mixture of experts W is (experts, output, input), and every
// result has a leading dimension `experts`.
class QuantizedWeight {
 public:
  virtual ~QuantizedWeight() = default;
  // Makes the layer store what squared_row_norms() returns. Called once, before the first call of the layer.
  virtual void keep_squared_row_norms() = 0;
  // The squared norms of the rows of W, (output).
  virtual Tensor squared_row_norms(Context& ctx) = 0;
  // x (N, input) -> x W^T (N, output), without a bias. Called in the context of the layer's call, after that call.
  virtual Tensor matmul(Context& ctx, Tensor x) = 0;
};

}  // namespace meshloom::layers
