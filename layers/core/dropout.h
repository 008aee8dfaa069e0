// Dropout as functions, for layers that drop a part of what they compute. Outside training, and at a rate of 0, they
// return x itself. `name` tells a call from others in the same context, so that each draws its own random numbers.
#pragma once

#include <string>

#include "layers/core/context.h"

namespace meshloom::layers {

// Sets each element of x to 0 with probability `rate`, and divides the others by 1 - rate (Srivastava et al., 2014).
Tensor dropout(Context& ctx, Tensor x, double rate, const std::string& name = "dropout");
// Stochastic depth: the same for whole rows of the batch at a time (Huang et al., 2016).
Tensor stochastic_depth(Context& ctx, Tensor x, double rate, const std::string& name = "dropout");
// `rate`. Throws Error at `path` unless it is in [0, 1).
double checked_dropout_rate(const std::string& path, double rate);

}  // namespace meshloom::layers
