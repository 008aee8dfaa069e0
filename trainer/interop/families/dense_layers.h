// The fields of config.json that say which layers of a mixture-of-experts model have no experts:
// decoder_sparse_step, mlp_only_layers and, for the size of their feed-forward, intermediate_size.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "layers/models/causal_lm.h"

namespace meshloom::trainer {

// Whether the field is one of those that are read here, for families with a dense_hidden.
bool is_dense_layer_field(const std::string& name);

// Replaces the MoE of the dense layers by a FeedForward of intermediate_size, or of `absent`; its other
// fields are those of an expert. Throws Error.
void read_dense_layers(const nlohmann::json& json, const std::string& where, std::int64_t absent,
                       layers::CausalLM::Config& model);
// Throws Error when the feed-forwards of dense layers have different sizes.
void write_dense_layers(const layers::Config& model, nlohmann::ordered_json& json);

// The model whose stack has as `layer` a layer with experts, if there is one; the other fields are read from
// it.
std::unique_ptr<layers::Config> from_sparse_layer(const layers::Config& model);

}  // namespace meshloom::trainer
