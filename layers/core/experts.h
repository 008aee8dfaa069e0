// Parameters of which each expert of a mixture has its own copy, and the product with them.
#pragma once

#include <cstdint>

#include "layers/core/context.h"

namespace meshloom::layers {

// Provided by a mixture of experts to its descendants: every parameter that they declare gets a leading dimension of
// `count`, with one copy per expert.
struct Experts {
  std::int64_t count;
};

// Call information: rows are sorted by expert, and those of expert e are [offsets[e], offsets[e + 1]) (see
// kernels/grouped_matmul). A layer multiplies each row by the parameters of the row's own expert.
struct ExpertRows {
  Tensor offsets;  // (count + 1) i32
};

// x (N, input) W^T + bias (output), where no bias is an empty tensor. W is (output, input); below a mixture of experts
// W is (count, output, input) and the bias (count, output). Throws Error if W has experts and the context has no
// ExpertRows.
Tensor project(Context& ctx, Tensor x, Tensor weight, Tensor bias = {});

}  // namespace meshloom::layers
