// The fields of config.json that say which layers give queries and keys no positions (NoPE): no_rope_layers and
// no_rope_layer_interval.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "layers/models/causal_lm.h"

namespace meshloom::trainer {

// Whether the field is one of those that are read here, for families with no_rope.
bool is_no_rope_field(const std::string& name);

// Overrides the positions of these layers, as transformers 5.24 reads the fields. Throws Error.
void read_no_rope(const nlohmann::json& json, const std::string& where, layers::CausalLM::Config& model);
void write_no_rope(const layers::Config& model, nlohmann::ordered_json& json);
// One entry for each layer.
std::vector<bool> layers_without_rope(const layers::Config& model);

}  // namespace meshloom::trainer
