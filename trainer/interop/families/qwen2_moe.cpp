// Qwen 1.5 and 2 with experts in all layers or some, and one shared expert with a gate of its own.
#include "layers/moe/moe.h"
#include "layers/wrappers/sigmoid_gated.h"
#include "trainer/interop/families/experts.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config qwen2_moe_skeleton() {
  layers::CausalLM::Config model = with_experts(qwen2_family().skeleton());
  auto& moe = *llama_layer(model).feed_forward.as<layers::MoE::Config>();
  layers::SigmoidGated::Config shared;
  shared.base = static_cast<const layers::FeedForward::Config&>(moe);
  moe.shared = shared;
  return model;
}

}  // namespace

Family qwen2_moe_family() {
  using Kind = FieldRule::Kind;
  Family family = qwen2_family();
  family.name = "qwen2_moe";
  family.architecture = "Qwen2MoeForCausalLM";
  family.skeleton = qwen2_moe_skeleton;
  set_absent(family, "num_key_value_heads", "16");
  family.windows.layers = WindowPattern::Layers::even_to_max_window;
  family.windows.null_is_none = false;
  const std::string shared = kLayer + "feed_forward.shared.base.";
  for (FieldRule& field : family.fields)
    if (field.name == "hidden_act") field.paths.push_back(shared + "activation");
  add_qwen_experts(family, {.hidden = "1408", .dense = 5632, .experts = "60", .chosen = "4"});
  family.fields.push_back({"shared_expert_intermediate_size", Kind::size, {shared + "hidden_dim"}, "5632"});
  family.fields.push_back(flag_rule(
      "qkv_bias", "true", {"attention.q_proj.bias", "attention.k_proj.bias", "attention.v_proj.bias"}));
  const std::string path = "decoder/stack/layer{i}/feed_forward/shared/",
                    hf_prefix = "model.layers.{i}.mlp.shared_expert";
  family.tensors.push_back({{path + "gate/weight"}, hf_prefix + "_gate.weight"});
  for (const std::string name : {"gate", "up", "down"})
    family.tensors.push_back(
        {{path + "base/" + name + "_proj/weight"}, hf_prefix + "." + name + "_proj.weight"});
  return family;
}

}  // namespace meshloom::trainer
