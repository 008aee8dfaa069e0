// Phi-3, Phi-3.5 and Phi-4-mini (Microsoft): a Llama whose queries, keys and values, and whose gate and up projection, are one
// tensor each, with LongRoPE (longrope.h) and heads that may rotate in part.
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

Family phi3_family() {
  Family family = llama_like("phi3", "Phi3ForCausalLM");
  set_absent(family, "head_dim", "none");
  set_absent(family, "rms_norm_eps", "1e-5");
  family.fields.push_back(tied_rule("false"));
  family.max_positions = 4096;
  family.partial_rotary = true;
  family.longrope_length = 4096;
  family.windows = {.layers = WindowPattern::Layers::all, .absent_size = 0};
  // An absent pad_token_id means 32000, which transformers refuses in smaller vocabularies.
  family.null_fields = {"pad_token_id"};
  // Files of Phi-4-mini have them; transformers does not read them.
  family.ignored_fields = {"full_attn_mod", "interpolate_factor", "lm_head_bias"};
  const std::string path = "decoder/stack/layer{i}/", hf_prefix = "model.layers.{i}.";
  std::erase_if(family.tensors, [&](const TensorRule& rule) {
    for (const char* name : {"q", "k", "v", "gate", "up"})
      if (rule.hf_name.find(std::string(".") + name + "_proj.") != std::string::npos) return true;
    return false;
  });
  const auto add = [&](const std::string& block, const std::vector<std::string>& names,
                       const std::string& hf_name) {
    TensorRule rule{{}, hf_prefix + hf_name + ".weight"};
    for (const std::string& name : names)
      rule.parameters.push_back(path + block + "/" + name + "_proj/weight");
    family.tensors.push_back(rule);
  };
  add("attention", {"q", "k", "v"}, "self_attn.qkv_proj");
  add("feed_forward", {"gate", "up"}, "mlp.gate_up_proj");
  return family;
}

}  // namespace meshloom::trainer
