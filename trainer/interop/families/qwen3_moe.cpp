// Qwen 3 with experts in all layers or some.
#include "trainer/interop/families/experts.h"

namespace meshloom::trainer {

Family qwen3_moe_family() {
  Family family = qwen3_family();
  family.name = "qwen3_moe";
  family.architecture = "Qwen3MoeForCausalLM";
  family.skeleton = [] { return with_experts(qwen3_family().skeleton()); };
  set_absent(family, "num_key_value_heads", "4");
  set_absent(family, "head_dim", "none");
  family.windows = {.layers = WindowPattern::Layers::all, .needs_use_sliding_window = true};
  add_qwen_experts(
      family,
      {.hidden = "768", .dense = 6144, .experts = "128", .chosen = "8", .alias = "num_local_experts"});
  // Further fields of Qwen3-Coder, which must have the values that all models of the family have.
  family.fields.push_back(only_rule("use_qk_norm", "true"));
  family.fields.push_back(only_rule("qkv_bias", "false"));
  family.fields.push_back(only_rule("shared_expert_intermediate_size", "0"));
  return family;
}

}  // namespace meshloom::trainer
