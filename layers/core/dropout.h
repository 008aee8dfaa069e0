// Dropout as a function, for the layers that drop something of what they compute.
#pragma once

#include <string>

#include "layers/core/context.h"

namespace meshloom::layers {

// `rate` of the elements of x become 0, the others x / (1 - rate) (Srivastava et al., 2014); x itself where
// nothing is dropped: outside training, and at a rate of 0. `name` tells this draw from others in the same
// context.
Tensor dropped(Context& ctx, Tensor x, double rate, const std::string& name = "dropout");
// `rate` if it is one: in [0, 1). Throws Error at `path`.
double dropout_rate(const std::string& path, double rate);
// The same for whole rows of the batch: those that are dropped become 0 (Huang et al., 2016).
Tensor dropped_rows(Context& ctx, Tensor x, double rate, const std::string& name = "dropout");

}  // namespace meshloom::layers
