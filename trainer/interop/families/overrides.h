// Layers of a stack that differ from the others.
#pragma once

#include <string>
#include <vector>

#include "layers/models/causal_lm.h"

namespace meshloom::trainer {

// The config of each layer. Throws Error if the model has no stack of layers.
std::vector<layers::Child<layers::Layer::Config>> layers_of(const layers::Config& model);

// Sets the field `where` to `with` in the layers for which `chosen` is true; it has one entry per layer, and
// at least one is true. The model's stack becomes a HeterogeneousStack.
void override_layers(layers::CausalLM::Config& model, const std::string& where,
                     layers::Child<layers::Config> with, const std::vector<bool>& chosen);

}  // namespace meshloom::trainer
