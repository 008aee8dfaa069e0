// Changes of shape and of order.
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "reshape": input x; attr shape (list, same number of elements); output: a view of x.
// op "permute": input x of rank <= 4, any float or 4-byte dtype; attr order (list): output dimension i is input dimension order[i].
// op "stack": inputs n tensors (1) f32; output (n) f32. Not differentiable. Any n.
Tensor reshape(Tensor x, Shape shape);
Tensor permute(Tensor x, std::vector<std::int64_t> order);
Tensor stack(const std::vector<Tensor>& scalars);

}  // namespace meshloom::kernels
