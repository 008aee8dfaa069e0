// The fields of config.json that say which layers of a model of experts have none: decoder_sparse_step,
// mlp_only_layers and, for the feed-forward of these, intermediate_size.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "layers/models/causal_lm.h"

namespace meshloom::trainer {

// Names of the fields that are read here, for families with a dense_hidden.
bool is_dense_layer_field(const std::string& name);

// Puts a FeedForward of intermediate_size, or of `absent`, in the place of the MoE of the layers that are
// dense; its other fields are those of an expert. Throws Error.
void read_dense_layers(const nlohmann::json& json, const std::string& where, std::int64_t absent,
                       layers::CausalLM::Config& model);
// Throws Error where feed-forwards without experts are of several sizes.
void write_dense_layers(const layers::Config& model, nlohmann::ordered_json& json);

// `model` with a layer that has experts, where some have, as `layer` of its stack: what its fields are read
// from.
std::unique_ptr<layers::Config> from_sparse_layer(const layers::Config& model);

}  // namespace meshloom::trainer
