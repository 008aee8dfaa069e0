// What an adapter that looks into the weight it adapts asks of a layer that keeps it packed.
#pragma once

#include "layers/core/context.h"

namespace meshloom::layers {

// W (output, input) is what the layer multiplies by, unpacked; below experts (experts, output, input), and so with an
// `experts` in front everywhere.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  // Once, before the first call, by whoever will ask for squared_lengths().
  virtual void keep_squared_lengths() = 0;
  // Of the rows of W: (output).
  virtual Tensor squared_lengths(Context& ctx) = 0;
  // x (N, input) -> x W^T (N, output), without a bias. In the context of the layer's call, after it.
  virtual Tensor times(Context& ctx, Tensor x) = 0;
};

}  // namespace meshloom::layers
