// Qwen 3: a Llama whose queries and keys are normalized head by head.
#include "layers/attention/qk_norm_projection.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config qwen3_skeleton() {
  layers::CausalLM::Config model = llama_skeleton();
  auto& attention = *llama_layer(model).attention.as<layers::Attention::Config>();
  attention.q_proj = layers::QKNormProjection::Config{};
  attention.k_proj = layers::QKNormProjection::Config{};
  return model;
}

}  // namespace

Family qwen3_family() {
  Family family = llama_like("qwen3", "Qwen3ForCausalLM");
  family.skeleton = qwen3_skeleton;
  set_absent(family, "num_key_value_heads", "32", "=num_attention_heads");
  set_absent(family, "head_dim", "128");
  family.max_positions = 32768;
  family.windows = {.layers = WindowPattern::Layers::from_max_window,
                    .reads_layer_types = true,
                    .needs_use_sliding_window = true};
  for (FieldRule& field : family.fields)
    if (field.name == "rms_norm_eps")
      for (const char* name : {"q", "k"})
        field.paths.push_back(kLayer + "attention." + name + "_proj.norm.eps");
  family.fields.push_back(flag_rule("attention_bias", "false",
                                    {"attention.q_proj.projection.bias", "attention.k_proj.projection.bias",
                                     "attention.v_proj.bias", "attention.o_proj.bias"}));
  family.fields.push_back(tied_rule("false"));
  for (const char* name : {"q", "k"}) {
    const std::string path = std::string("decoder/stack/layer{i}/attention/") + name + "_proj/";
    const std::string hf_prefix = std::string("model.layers.{i}.self_attn.") + name;
    for (const char* kind : {"weight", "bias"})
      family.tensors.push_back({{path + "projection/" + kind}, hf_prefix + "_proj." + kind});
    family.tensors.push_back({{path + "norm/weight"}, hf_prefix + "_norm.weight"});
  }
  return family;
}

}  // namespace meshloom::trainer
