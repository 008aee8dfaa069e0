// Qwen 3: a Llama whose queries and keys are normalized head by head.
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config qwen3_skeleton() {
  layers::CausalLM::Config model = llama_skeleton();
  with_qk_norms(model, layers::RMSNorm::Config{});
  return model;
}

}  // namespace

Family qwen3_family() {
  Family family = llama_like("qwen3", "Qwen3ForCausalLM");
  family.skeleton = qwen3_skeleton;
  set_absent(family, "num_key_value_heads", "32", "=num_attention_heads");
  set_absent(family, "head_dim", "128");
  family.max_positions = 32768;
  family.windows = {.layers = WindowPattern::Layers::from_max_window,
                    .reads_layer_types = true,
                    .needs_use_sliding_window = true};
  add_qk_norms(family);
  family.fields.push_back(tied_rule("false"));
  return family;
}

}  // namespace meshloom::trainer
