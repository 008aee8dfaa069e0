// Qwen 2 and 2.5: a Llama with biases on queries, keys and values.
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config qwen2_skeleton() {
  layers::CausalLM::Config model = llama_skeleton();
  auto& attention = *llama_layer(model).attention.as<layers::Attention::Config>();
  for (auto* projection : {&attention.q_proj, &attention.k_proj, &attention.v_proj})
    projection->as<layers::Linear::Config>()->bias = true;
  return model;
}

}  // namespace

Family qwen2_family() {
  Family family = llama_like("qwen2", "Qwen2ForCausalLM");
  family.skeleton = qwen2_skeleton;
  set_absent(family, "num_key_value_heads", "32", "=num_attention_heads");
  set_absent(family, "head_dim", "none");
  family.max_positions = 32768;
  family.windows = {.layers = WindowPattern::Layers::from_max_window,
                    .reads_layer_types = true,
                    .needs_use_sliding_window = true};
  family.fields.push_back(tied_rule("false"));
  family.fields.push_back(only_rule("use_mrope", "false"));
  return family;
}

}  // namespace meshloom::trainer
