// Gradients wait for the update in the host's memory, as activations wait for the backward pass.
#pragma once

#include <vector>

#include "trainer/compose/passes/memory/remat.h"

namespace meshloom::trainer {

// The tag by which remat rules find the gradients of a program that updates the parameters itself. (They cannot be
// recomputed: a rule for that keeps them.)
constexpr char kGradients[] = "gradients";

// Where the first rule that matches kGradients says offload: each gradient is copied to the host after the call that defines
// it, and back before the update reads it. Calls of the update that read nothing else, such as its norm, move up to where it
// is defined. Values keep their bits. `matched` receives for each rule whether it moved anything, as in rematerialize.
kernels::Program offload_gradients(kernels::Program program, const kernels::Catalog& catalog,
                                   const std::vector<RematRule>& rules, std::vector<char>* matched = nullptr,
                                   const OffloadLimits& limits = {});

}  // namespace meshloom::trainer
