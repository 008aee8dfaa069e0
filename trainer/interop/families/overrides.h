// Makes some layers of a stack differ from the others.
#pragma once

#include <string>
#include <vector>

#include "layers/models/causal_lm.h"

namespace meshloom::trainer {

// Sets the field `where` to `with` in the layers for which `chosen` is true; it has one entry per layer, and
// at least one is true. The model's stack becomes a HeterogeneousStack.
void override_layers(layers::CausalLM::Config& model, const std::string& where,
                     layers::Child<layers::Config> with, const std::vector<bool>& chosen);

}  // namespace meshloom::trainer
