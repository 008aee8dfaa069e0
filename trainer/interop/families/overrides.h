// Layers that differ from the others of a stack, as families of transformers have them.
#pragma once

#include <string>
#include <vector>

#include "layers/models/causal_lm.h"

namespace meshloom::trainer {

// `with` in the place `where` of the layers that `chosen` says, which has one entry for each and names one or
// more: the model's stack is a HeterogeneousStack afterwards.
void override_layers(layers::CausalLM::Config& model, const std::string& where,
                     layers::Child<layers::Config> with, const std::vector<bool>& chosen);

}  // namespace meshloom::trainer
