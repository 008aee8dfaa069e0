// Qwen 3 with experts, in every layer.
#include "trainer/interop/experts.h"

namespace meshloom::trainer {

Family qwen3_moe_family() {
  using Kind = FieldRule::Kind;
  Family family = qwen3_family();
  family.name = "qwen3_moe";
  family.architecture = "Qwen3MoeForCausalLM";
  family.skeleton = [] { return with_experts(qwen3_family().skeleton()); };
  set_absent(family, "num_key_value_heads", "4");
  set_absent(family, "head_dim", "none");
  for (FieldRule& field : family.fields)
    if (field.name == "intermediate_size") {
      field.name = "moe_intermediate_size";
      field.absent = "768";
    }
  family.fields.push_back({"intermediate_size", Kind::size, {}, "6144"});  // of dense layers, and there are none
  add_experts(family, {"mlp", {"gate_proj", "up_proj", "down_proj"}, "num_experts", "128"}, "8");
  family.fields.push_back({"norm_topk_prob", Kind::choice, {kLayer + "feed_forward.gating.normalize"}, "false",
                           {{"false", "false"}, {"true", "true"}}});
  family.fields.push_back({"decoder_sparse_step", Kind::choice, {}, "1", {{"1", ""}}});
  family.fields.push_back({"mlp_only_layers", Kind::choice, {}, "[]", {{"[]", ""}}});
  return family;
}

}  // namespace meshloom::trainer
