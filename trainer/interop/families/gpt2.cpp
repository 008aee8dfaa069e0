// GPT-2. Its linear layers are stored as (inputs, outputs); queries, keys and values are one tensor.
#include "layers/models/models.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {
namespace {

layers::CausalLM::Config gpt2_skeleton() {
  return layers::gpt2_config({.vocab = 1, .dim = 1, .layers = 1, .heads = 1, .context = 1});
}

std::vector<TensorRule> tensors() {
  const std::string path = "decoder/stack/layer{i}/", hf_prefix = "transformer.h.{i}.";
  std::vector<TensorRule> rules{{{"decoder/embedding/weight"}, "transformer.wte.weight"},
                                {{"decoder/positions/weight"}, "transformer.wpe.weight"}};
  for (const std::string kind : {"weight", "bias"}) {
    const bool matrix = kind == "weight";
    const auto linear = [&](const std::vector<std::string>& names, const std::string& name) {
      std::vector<std::string> paths;
      for (const std::string& each : names) paths.push_back(path + each + "/" + kind);
      rules.push_back({paths, hf_prefix + name + "." + kind, matrix});
    };
    linear({"attention/q_proj", "attention/k_proj", "attention/v_proj"}, "attn.c_attn");
    linear({"attention/o_proj"}, "attn.c_proj");
    linear({"feed_forward/up_proj"}, "mlp.c_fc");
    linear({"feed_forward/down_proj"}, "mlp.c_proj");
    rules.push_back({{path + "attention_norm/" + kind}, hf_prefix + "ln_1." + kind});
    rules.push_back({{path + "feed_forward_norm/" + kind}, hf_prefix + "ln_2." + kind});
    rules.push_back({{"decoder/norm/" + kind}, "transformer.ln_f." + kind});
  }
  rules.push_back({{"decoder/head/weight"}, "lm_head.weight"});
  return rules;
}

}  // namespace

Family gpt2_family() {
  using Kind = FieldRule::Kind;
  Family family;
  family.name = "gpt2";
  family.architecture = "GPT2LMHeadModel";
  family.skeleton = gpt2_skeleton;
  family.fields = {
      {"vocab_size", Kind::size, {"vocab_size"}},
      {"n_embd", Kind::size, {"decoder.dim"}, "", {}, "", "hidden_size"},
      {"n_layer", Kind::size, {"decoder.stack.num_layers"}, "", {}, "", "num_hidden_layers"},
      {"n_head", Kind::size, {kLayer + "attention.num_heads"}, "", {}, "", "num_attention_heads"},
      {"n_positions",
       Kind::size,
       {"decoder.positions.max_length"},
       "1024",
       {},
       "",
       "max_position_embeddings"},
      {"n_inner", Kind::size, {kLayer + "feed_forward.hidden_dim"}, "=4*n_embd", {}, "=4*n_embd"},
      {"activation_function",
       Kind::choice,
       {kLayer + "feed_forward.activation"},
       "\"gelu_new\"",
       activation_choices("\"gelu_new\"")},
      {"layer_norm_epsilon",
       Kind::number,
       {kLayer + "attention_norm.eps", kLayer + "feed_forward_norm.eps", "decoder.norm.eps"},
       "1e-5"},
      tied_rule("true"),
      only_rule("scale_attn_weights", "true"),
      only_rule("scale_attn_by_inverse_layer_idx", "false"),
      only_rule("add_cross_attention", "false")};
  family.ignored_fields = {"n_ctx",
                           "output_past",
                           "reorder_and_upcast_attn",
                           "summary_type",
                           "summary_use_proj",
                           "summary_activation",
                           "summary_proj_to_labels",
                           "summary_first_dropout",
                           "summary_last_dropout",
                           "summary_hidden_size"};
  family.rotary = false;
  family.tensors = tensors();
  family.head = "lm_head.weight";
  family.embedding = "transformer.wte.weight";
  family.prefix = "transformer.";
  family.ignored_tensors = {"transformer.h.{i}.attn.bias", "transformer.h.{i}.attn.masked_bias"};
  return family;
}

}  // namespace meshloom::trainer
