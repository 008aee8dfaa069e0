// The product with a parameter that may be one of several copies (experts.h).
#pragma once

#include "layers/core/context.h"

namespace meshloom::layers {

// x (N, input) W^T + bias (output): W (output, input), or below experts (count, output, input) with a bias
// (count, output), where each row has its expert's own. No tensor = no bias. Throws Error where rows of
// experts are not known.
Tensor project(Context& ctx, Tensor x, Tensor weight, Tensor bias = {});

}  // namespace meshloom::layers
