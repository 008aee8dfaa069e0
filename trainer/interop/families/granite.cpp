// Granite 3 (IBM): a Llama with numbers by which embeddings, scores and what is added to the residual stream are multiplied, and
// logits divided.
#include "layers/block/scaled_residual.h"
#include "layers/wrappers/scaled_head.h"
#include "layers/wrappers/soft_cap.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config granite_skeleton() {
  layers::CausalLM::Config model = llama_skeleton();
  layers::ScaledResidualLayer layer;
  static_cast<layers::ResidualLayer::Config&>(layer) = llama_layer(model);
  layer.attention.as<layers::Attention::Config>()->scale = 1;
  model.decoder->stack.as<layers::Stack::Config>()->layer = layer;
  layers::ScaledEmbedding::Config embedding;
  embedding.scale = 1;
  model.decoder->embedding = embedding;
  model.decoder->head = layers::ScaledHead::Config{};
  return model;
}

}  // namespace

Family granite_family() {
  using Kind = FieldRule::Kind;
  Family family = llama_like("granite", "GraniteForCausalLM");
  family.skeleton = granite_skeleton;
  set_absent(family, "head_dim", "none");
  family.fields.push_back(attention_bias_rule());
  family.fields.push_back(mlp_bias_rule());
  FieldRule tied = tied_rule("false");
  tied.paths = {"decoder.head.base"};
  family.fields.push_back(tied);
  family.fields.push_back({"embedding_multiplier", Kind::number, {"decoder.embedding.scale"}, "1.0"});
  family.fields.push_back({"attention_multiplier", Kind::number, {kLayer + "attention.scale"}, "1.0"});
  family.fields.push_back({"residual_multiplier", Kind::number, {kLayer + "residual_scale"}, "1.0"});
  family.fields.push_back({"logits_scaling", Kind::number, {"decoder.head.divisor"}, "1.0"});
  return family;
}

}  // namespace meshloom::trainer
