// Updates each parameter as soon as its gradient is known, so that gradients do not wait for each other in memory (Lv et al., Full
// parameter fine-tuning for large language models with limited resources, 2023; torchtune's optimizer_in_bwd).
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// Moves every call of the update to behind the last call that it needs: those that compute its inputs, and those that read what it
// overwrites. Calls keep their order where nothing else is said. The program must have legal donations (donations.h).
kernels::Program optimizer_in_backward(kernels::Program program, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
