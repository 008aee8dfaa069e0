// What families of mixtures of experts share: the feed-forward of a dense family with experts in its place.
#pragma once

#include <array>
#include <string>

#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// The model with an MoE for every feed-forward, whose fields describe each expert; softmax scores, and no auxiliary
// losses: transformers adds them only where config.json says output_router_logits.
layers::CausalLM::Config with_experts(layers::CausalLM::Config dense);

// How a family calls them: `block` is what model.layers.{i} holds ("mlp"), `projections` an expert's gate, up
// and down; `num_experts` the field of config.json, `absent` its default and `alias` its other name
// (FieldRule).
struct ExpertNames {
  std::string block;
  std::array<std::string, 3> projections;
  std::string num_experts, absent, alias;
};
// Adds the fields and tensors; for models made by with_experts.
void add_experts(Family& family, const ExpertNames& names, const std::string& absent_k);

// The same for the Qwens, whose other fields on experts are alike: what absent ones mean.
struct QwenExperts {
  std::string hidden;           // size of an expert
  std::int64_t dense;           // of a feed-forward in a layer without
  std::string experts, chosen;  // how many
  std::string alias = {};       // other name of num_experts
};
void add_qwen_experts(Family& family, const QwenExperts& absent);

}  // namespace meshloom::trainer
