// OLMo 2 (Ai2): norms after attention and feed-forward only, and queries and keys that are normalised over all heads together.
#include "layers/attention/joint_norm_projection.h"
#include "layers/block/residual_layers.h"
#include "layers/norm/identity_norm.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config olmo2_skeleton() {
  layers::CausalLM::Config model = llama_skeleton();
  layers::HybridNormLayer layer;
  static_cast<layers::ResidualLayer::Config&>(layer) = llama_layer(model);
  layer.attention_norm = layer.feed_forward_norm = layers::IdentityNorm::Config{};
  auto& attention = *layer.attention.as<layers::Attention::Config>();
  attention.q_proj = attention.k_proj = layers::JointNormProjection::Config{};
  model.decoder->stack.as<layers::Stack::Config>()->layer = layer;
  return model;
}

}  // namespace

// The names of projections and norms of queries and keys are those of Qwen 3.
Family olmo2_family() {
  Family family = qwen3_family();
  family.name = "olmo2";
  family.architecture = "Olmo2ForCausalLM";
  family.skeleton = olmo2_skeleton;
  set_absent(family, "num_key_value_heads", "=num_attention_heads", "=num_attention_heads");
  set_absent(family, "head_dim", "none");
  set_absent(family, "rms_norm_eps", "1e-5");
  family.max_positions = 2048;
  family.windows = {};
  for (FieldRule& field : family.fields)
    if (field.name == "rms_norm_eps")
      for (std::string& path : field.paths)
        for (const char* name : {"attention", "feed_forward"})
          if (path == kLayer + name + "_norm.eps") path = kLayer + name + "_post_norm.eps";
  const std::string path = "decoder/stack/layer{i}/", hf_prefix = "model.layers.{i}.";
  std::erase_if(family.tensors, [&](const TensorRule& rule) {
    return rule.parameters.front().ends_with("attention_norm/weight") ||
           rule.parameters.front().ends_with("feed_forward_norm/weight");
  });
  family.tensors.push_back(
      {{path + "attention_post_norm/weight"}, hf_prefix + "post_attention_layernorm.weight"});
  family.tensors.push_back(
      {{path + "feed_forward_post_norm/weight"}, hf_prefix + "post_feedforward_layernorm.weight"});
  return family;
}

}  // namespace meshloom::trainer
