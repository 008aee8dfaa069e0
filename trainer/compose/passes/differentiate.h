// Reverse-mode differentiation (Griewank and Walther, 2008, ch. 3): visits the forward calls in reverse
// order, and each op's contract writes the calls of its gradient.
#pragma once

#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/builder.h"

namespace meshloom::trainer {

// Appends the backward calls to the builder's program. Returns d(of)/d(wrt[i]) in order, times `scale` if
// given; `of` and `scale` have one element. Backward calls have the path of their forward call. Cotangents of
// `wrt` get the role gradient, the name "grad/" + name, and the axes of their value. Throws Error when a
// value of `wrt` does not influence `of`, or an op in between has no gradient.
std::vector<kernels::Tensor> differentiate(kernels::Builder& builder, kernels::Tensor of,
                                           const std::vector<kernels::Tensor>& wrt,
                                           kernels::Tensor scale = {});

}  // namespace meshloom::trainer
