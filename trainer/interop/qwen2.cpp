// Qwen 2 and 2.5: a Llama with biases on queries, keys and values.
#include "trainer/interop/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config skeleton() {
  layers::CausalLM::Config model = llama_skeleton();
  auto& layer = *model.decoder->stack.as<layers::Stack::Config>()->layer.as<layers::TransformerLayer::Config>();
  auto& attention = *layer.attention.as<layers::Attention::Config>();
  for (auto* projection : {&attention.q_proj, &attention.k_proj, &attention.v_proj})
    projection->as<layers::Linear::Config>()->bias = true;
  return model;
}

}  // namespace

Family qwen2_family() {
  Family family;
  family.name = "qwen2";
  family.architecture = "Qwen2ForCausalLM";
  family.skeleton = skeleton;
  family.fields = llama_fields();
  for (FieldRule& field : family.fields)
    if (field.name == "num_key_value_heads") field.absent = "32";
  family.fields.push_back(tied_rule("false"));
  family.tensors = llama_tensors();
  family.head = "lm_head.weight";
  family.embedding = "model.embed_tokens.weight";
  return family;
}

}  // namespace meshloom::trainer
