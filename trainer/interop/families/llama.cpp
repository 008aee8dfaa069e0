// Llama 2 and 3, SmolLM2, TinyLlama and others of model_type "llama".
#include "layers/models/models.h"
#include "layers/position/position.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

layers::CausalLM::Config llama_skeleton() {
  layers::CausalLM::Config model = layers::llama_config(
      {.vocab = 1, .dim = 1, .layers = 1, .heads = 1, .kv_heads = 1, .ffn = 1, .tied = false});
  layers::SequenceLimit::Config limit;
  limit.max_length = 1;
  model.decoder->positions = limit;
  return model;
}

layers::ResidualLayer::Config& llama_layer(layers::CausalLM::Config& model) {
  return *model.decoder->stack.as<layers::Stack::Config>()->layer.as<layers::ResidualLayer::Config>();
}

namespace {

std::vector<FieldRule> llama_fields() {
  using Kind = FieldRule::Kind;
  return {{"vocab_size", Kind::size, {"vocab_size"}},
          {"hidden_size", Kind::size, {"decoder.dim"}},
          {"num_hidden_layers", Kind::size, {"decoder.stack.num_layers"}},
          {"num_attention_heads", Kind::size, {kLayer + "attention.num_heads"}},
          {"num_key_value_heads",
           Kind::size,
           {kLayer + "attention.num_kv_heads"},
           "=num_attention_heads",
           {},
           "=num_attention_heads"},
          {"head_dim", Kind::size, {kLayer + "attention.head_dim"}, "none", {}, "none"},
          {"intermediate_size", Kind::size, {kLayer + "feed_forward.hidden_dim"}},
          {"hidden_act",
           Kind::choice,
           {kLayer + "feed_forward.activation"},
           "\"silu\"",
           activation_choices("\"silu\"")},
          {"rms_norm_eps",
           Kind::number,
           {kLayer + "attention_norm.eps", kLayer + "feed_forward_norm.eps", "decoder.norm.eps"},
           "1e-6"}};
}

std::vector<TensorRule> llama_tensors() {
  const std::string path = "decoder/stack/layer{i}/", hf_prefix = "model.layers.{i}.";
  std::vector<TensorRule> rules{{{"decoder/embedding/weight"}, "model.embed_tokens.weight"}};
  for (const char* kind : {"weight", "bias"}) {
    for (const char* name : {"q", "k", "v", "o"})
      rules.push_back({{path + "attention/" + name + "_proj/" + kind},
                       hf_prefix + "self_attn." + name + "_proj." + kind});
    for (const char* name : {"gate", "up", "down"})
      rules.push_back(
          {{path + "feed_forward/" + name + "_proj/" + kind}, hf_prefix + "mlp." + name + "_proj." + kind});
  }
  rules.push_back({{path + "attention_norm/weight"}, hf_prefix + "input_layernorm.weight"});
  rules.push_back({{path + "feed_forward_norm/weight"}, hf_prefix + "post_attention_layernorm.weight"});
  rules.push_back({{"decoder/norm/weight"}, "model.norm.weight"});
  rules.push_back({{"decoder/head/weight"}, "lm_head.weight"});
  return rules;
}

}  // namespace

Family llama_like(const std::string& name, const std::string& architecture) {
  Family family;
  family.name = name;
  family.architecture = architecture;
  family.skeleton = llama_skeleton;
  family.fields = llama_fields();
  family.tensors = llama_tensors();
  family.head = "lm_head.weight";
  family.embedding = "model.embed_tokens.weight";
  return family;
}

void set_absent(Family& family, const std::string& field, const std::string& value, const std::string& null) {
  for (FieldRule& rule : family.fields)
    if (rule.name == field) {
      rule.absent = value;
      rule.null = null;
    }
}

void drop_field(Family& family, const std::string& name) {
  std::erase_if(family.fields, [&](const FieldRule& rule) { return rule.name == name; });
}

FieldRule flag_rule(const std::string& name, const std::string& absent,
                    const std::vector<std::string>& paths) {
  FieldRule rule{name, FieldRule::Kind::choice, {}, absent, {{"false", "false"}, {"true", "true"}}};
  for (const std::string& path : paths) rule.paths.push_back(kLayer + path);
  return rule;
}

FieldRule attention_bias_rule() {
  return flag_rule(
      "attention_bias", "false",
      {"attention.q_proj.bias", "attention.k_proj.bias", "attention.v_proj.bias", "attention.o_proj.bias"});
}

FieldRule mlp_bias_rule() {
  return flag_rule(
      "mlp_bias", "false",
      {"feed_forward.gate_proj.bias", "feed_forward.up_proj.bias", "feed_forward.down_proj.bias"});
}

Family llama_family() {
  Family family = llama_like("llama", "LlamaForCausalLM");
  family.fields.push_back(attention_bias_rule());
  family.fields.push_back(mlp_bias_rule());
  family.fields.push_back(tied_rule("false"));
  family.fields.push_back(only_rule("rope_interleaved", "false"));
  family.divides_by_heads = true;
  family.ignored_fields = {"is_llama_config"};
  family.ignored_tensors = {"model.layers.{i}.self_attn.rotary_emb.inv_freq"};
  return family;
}

}  // namespace meshloom::trainer
