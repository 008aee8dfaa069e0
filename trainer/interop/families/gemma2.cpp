// Gemma 2: norms before and after each block, soft caps on scores and logits, scaled embeddings, and a window
// in every other layer (see windows.h).
#include "layers/block/residual_layers.h"
#include "layers/norm/gemma_rms_norm.h"
#include "layers/wrappers/soft_cap.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config gemma2_skeleton() {
  layers::CausalLM::Config model = llama_skeleton();
  const layers::ResidualLayer::Config& llama = llama_layer(model);
  const layers::GemmaRMSNorm::Config norm;
  layers::HybridNormLayer layer;
  layer.attention = llama.attention;
  layer.feed_forward = llama.feed_forward;
  layer.attention_norm = layer.feed_forward_norm = norm;
  layer.attention_post_norm = layer.feed_forward_post_norm = norm;
  auto& attention = *layer.attention.as<layers::Attention::Config>();
  attention.scale = attention.soft_cap = 1;
  model.decoder->stack.as<layers::Stack::Config>()->layer = layer;
  model.decoder->embedding = layers::ScaledEmbedding::Config{};
  model.decoder->norm = norm;
  model.decoder->head = layers::SoftCap::Config{};
  return model;
}

}  // namespace

Family gemma2_family() {
  using Kind = FieldRule::Kind;
  Family family = llama_like("gemma2", "Gemma2ForCausalLM");
  family.skeleton = gemma2_skeleton;
  set_absent(family, "num_key_value_heads", "4");
  family.max_positions = 8192;
  family.divides_by_heads = true;
  family.windows = {.layers = WindowPattern::Layers::even, .reads_layer_types = true, .null_is_none = false};
  set_absent(family, "head_dim", "256");
  drop_field(family, "hidden_act");
  for (FieldRule& field : family.fields)
    if (field.name == "rms_norm_eps")
      for (const char* name : {"attention", "feed_forward"})
        field.paths.push_back(kLayer + name + "_post_norm.eps");
  const auto activations = activation_choices("\"gelu_pytorch_tanh\"");
  family.fields.push_back({"hidden_activation",
                           Kind::choice,
                           {kLayer + "feed_forward.activation"},
                           "\"gelu_pytorch_tanh\"",
                           activations});
  // These have no effect: transformers reads hidden_activation and sliding_window instead.
  family.ignored_fields = {"hidden_act", "cache_implementation", "sliding_window_size"};
  family.fields.push_back(only_rule("use_bidirectional_attention", "false", "false"));
  family.fields.push_back(attention_bias_rule());
  family.fields.push_back({"query_pre_attn_scalar", Kind::inverse_root, {kLayer + "attention.scale"}, "256"});
  family.fields.push_back(
      {"attn_logit_softcapping", Kind::number, {kLayer + "attention.soft_cap"}, "50.0", {}, "none"});
  family.fields.push_back(
      {"final_logit_softcapping", Kind::number, {"decoder.head.cap"}, "30.0", {}, "none"});
  family.fields.push_back(only_rule("tie_word_embeddings", "true"));
  const std::string path = "decoder/stack/layer{i}/", hf_prefix = "model.layers.{i}.";
  std::erase_if(family.tensors, [&](const TensorRule& rule) {
    return rule.parameters.front() == path + "feed_forward_norm/weight";
  });
  family.tensors.push_back(
      {{path + "attention_post_norm/weight"}, hf_prefix + "post_attention_layernorm.weight"});
  family.tensors.push_back(
      {{path + "feed_forward_norm/weight"}, hf_prefix + "pre_feedforward_layernorm.weight"});
  family.tensors.push_back(
      {{path + "feed_forward_post_norm/weight"}, hf_prefix + "post_feedforward_layernorm.weight"});
  return family;
}

}  // namespace meshloom::trainer
