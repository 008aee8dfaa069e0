// The text of Gemma 3: a Gemma 2 whose queries and keys are normalized head by head, without a soft cap on scores, and with
// windows in five of six layers (windows.h), whose rotary positions have frequencies of their own (rotary.h).
#include "layers/norm/gemma_rms_norm.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config gemma3_skeleton() {
  layers::CausalLM::Config model = gemma2_family().skeleton();
  llama_layer(model).attention.as<layers::Attention::Config>()->soft_cap = std::nullopt;
  with_qk_norms(model, layers::GemmaRMSNorm::Config{});
  return model;
}

}  // namespace

Family gemma3_family() {
  Family family = gemma2_family();
  family.name = "gemma3_text";
  family.architecture = "Gemma3ForCausalLM";
  family.skeleton = gemma3_skeleton;
  family.max_positions = 131072;
  family.rope_theta = 1000000;
  family.local_rope_theta = 10000;
  family.windows.layers = WindowPattern::Layers::all_but_every;
  drop_field(family, "attention_bias");
  add_qk_norms(family);
  set_absent(family, "final_logit_softcapping", "none", "none");
  // transformers stores it, and computes no attention with it.
  drop_field(family, "attn_logit_softcapping");
  family.ignored_fields = {"hidden_act", "cache_implementation", "attn_logit_softcapping",
                           "_sliding_window_pattern"};
  return family;
}

}  // namespace meshloom::trainer
