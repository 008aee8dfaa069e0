#include "trainer/interop/experts.h"

#include "layers/moe.h"

namespace meshloom::trainer {

layers::CausalLM::Config with_experts(layers::CausalLM::Config dense) {
  auto& layer = *dense.decoder->stack.as<layers::Stack::Config>()->layer.as<layers::TransformerLayer::Config>();
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
  family.fields.push_back({names.num_experts, Kind::size, {feed_forward + "num_experts"}, names.absent});
  family.fields.push_back({"num_experts_per_tok", Kind::size, {feed_forward + "gating.k"}, absent_k});
  family.fields.push_back({"output_router_logits", Kind::choice, {}, "false", {{"false", ""}}});
  const std::string ours = "decoder/stack/layer{i}/feed_forward/", theirs = "model.layers.{i}." + names.block + ".";
  family.tensors.push_back({{ours + "gating/router/weight"}, theirs + "gate.weight"});
  const std::array<std::string, 3> projections{"gate", "up", "down"};
  for (std::size_t p = 0; p < projections.size(); ++p)
    family.tensors.push_back({{ours + "experts/" + projections[p] + "_proj/weight"},
                              theirs + "experts.{e}." + names.projections[p] + ".weight"});
}

}  // namespace meshloom::trainer
