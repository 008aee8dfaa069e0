// Norms of queries and keys, head by head, which several families have.
#include "layers/attention/qk_norm_projection.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

void with_qk_norms(layers::CausalLM::Config& model, const layers::Child<layers::Norm::Config>& norm) {
  auto& attention = *llama_layer(model).attention.as<layers::Attention::Config>();
  layers::QKNormProjection::Config projection;
  projection.norm = norm;
  attention.q_proj = attention.k_proj = projection;
}

void add_qk_norms(Family& family) {
  for (FieldRule& field : family.fields)
    if (field.name == "rms_norm_eps")
      for (const char* name : {"q", "k"})
        field.paths.push_back(kLayer + "attention." + name + "_proj.norm.eps");
  family.fields.push_back(flag_rule("attention_bias", "false",
                                    {"attention.q_proj.projection.bias", "attention.k_proj.projection.bias",
                                     "attention.v_proj.bias", "attention.o_proj.bias"}));
  for (const char* name : {"q", "k"}) {
    const std::string path = std::string("decoder/stack/layer{i}/attention/") + name + "_proj/";
    const std::string hf_prefix = std::string("model.layers.{i}.self_attn.") + name;
    for (const char* kind : {"weight", "bias"})
      family.tensors.push_back({{path + "projection/" + kind}, hf_prefix + "_proj." + kind});
    family.tensors.push_back({{path + "norm/weight"}, hf_prefix + "_norm.weight"});
  }
}

}  // namespace meshloom::trainer
