// Shared by the mixture-of-experts families, which replace the feed-forward of a dense family by experts.
#pragma once

#include <array>
#include <string>

#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// The model with every feed-forward replaced by an MoE, whose experts have its fields. Scores are softmax,
// and there are no auxiliary losses: transformers adds them only with output_router_logits in config.json.
layers::CausalLM::Config with_experts(layers::CausalLM::Config dense);

// The names in a family: `block` is the module of model.layers.{i} ("mlp"), `projections` are an expert's
// gate, up and down; `num_experts` is the field of config.json, `absent` its default and `alias` its other
// name (FieldRule).
struct ExpertNames {
  std::string block;
  std::array<std::string, 3> projections;
  std::string num_experts, absent, alias;
};
// Adds the fields and tensors to a family whose models are made by with_experts.
void add_experts(Family& family, const ExpertNames& names, const std::string& absent_k);

// The same for the Qwen families, which share the other fields of experts: what absent fields mean.
struct QwenExperts {
  std::string hidden;      // the hidden size of an expert
  std::int64_t dense;      // the hidden size of the feed-forward in a layer without experts
  std::string experts;     // the number of experts
  std::string chosen;      // the number of experts per token
  std::string alias = {};  // the other name of num_experts
};
void add_qwen_experts(Family& family, const QwenExperts& absent);

}  // namespace meshloom::trainer
