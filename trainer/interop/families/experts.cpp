#include "trainer/interop/families/experts.h"

#include "layers/moe/moe.h"

namespace meshloom::trainer {

layers::CausalLM::Config with_experts(layers::CausalLM::Config dense) {
  layers::ResidualLayer::Config& layer = llama_layer(dense);
  layers::TopK::Config gating;
  gating.regularizers.clear();
  layers::MoE::Config moe;
  static_cast<layers::FeedForward::Config&>(moe) = *layer.feed_forward.as<layers::FeedForward::Config>();
  moe.num_experts = 1;
  moe.gating = gating;
  layer.feed_forward = moe;
  return dense;
}

void add_experts(Family& family, const ExpertNames& names, const std::string& absent_k) {
  using Kind = FieldRule::Kind;
  const std::string feed_forward = kLayer + "feed_forward.";
  family.fields.push_back(
      {names.num_experts, Kind::size, {feed_forward + "num_experts"}, names.absent, {}, "", names.alias});
  family.fields.push_back({"num_experts_per_tok", Kind::size, {feed_forward + "gating.k"}, absent_k});
  family.fields.push_back(only_rule("output_router_logits", "false"));
  family.ignored_fields.push_back("router_aux_loss_coef");
  const std::string path = "decoder/stack/layer{i}/feed_forward/",
                    hf_prefix = "model.layers.{i}." + names.block + ".";
  family.tensors.push_back({{path + "gating/router/weight"}, hf_prefix + "gate.weight"});
  const std::array<std::string, 3> projections{"gate", "up", "down"};
  for (std::size_t p = 0; p < projections.size(); ++p)
    family.tensors.push_back({{path + "experts/" + projections[p] + "_proj/weight"},
                              hf_prefix + "experts.{e}." + names.projections[p] + ".weight"});
}

void add_qwen_experts(Family& family, const QwenExperts& absent) {
  for (FieldRule& field : family.fields)
    if (field.name == "intermediate_size") {
      field.name = "moe_intermediate_size";
      field.absent = absent.hidden;
    }
  family.dense_hidden = absent.dense;
  add_experts(family,
              {"mlp", {"gate_proj", "up_proj", "down_proj"}, "num_experts", absent.experts, absent.alias},
              absent.chosen);
  family.fields.push_back(flag_rule("norm_topk_prob", "false", {"feed_forward.gating.normalize"}));
}

}  // namespace meshloom::trainer
