// Boundaries as text, kept in golden/: the resolved config and the traced program of two tiny models, and how
// every parameter starts. MESHLOOM_UPDATE_GOLDEN=1 writes them anew.
#include <gtest/gtest.h>

#include "kernels/core/catalog.h"
#include "kernels/program/print.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "layers/models/models.h"
#include "layers/models/trace.h"
#include "tests/golden_text.h"

namespace meshloom::layers {
namespace {

using tests::expect_golden;

// One line per parameter: what it is, how it starts and what becomes of it.
std::string parameter_table(const Module::Config& model) {
  std::string text;
  model.build({})->visit([&](const Module& module) {
    for (const Parameter& p : module.parameters()) {
      text += p.path + ": " + to_string(p.type) + " [";
      for (std::size_t i = 0; i < p.axes.size(); ++i)
        text += (i ? ", " : "") + (p.axes[i].empty() ? std::string("_") : p.axes[i]);
      text += "] " + std::string(p.init->class_name()) + "{";
      for (const auto& [field, value] : flatten(*p.init)) text += field + "=" + value;
      text += std::string("}") + (p.decay ? " decays" : "") + (p.frozen ? " frozen" : "") +
              (p.adapter ? " adapter" : "") + "\n";
    }
  });
  return text;
}

void expect_goldens(const std::string& name, const Module::Config& model) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  expect_golden("layers/golden/" + name + "_config.txt", print(model));
  expect_golden("layers/golden/" + name + "_parameters.txt", parameter_table(model));
  expect_golden("layers/golden/" + name + "_loss.txt",
                kernels::print(trace_loss(model, catalog, 2, 6).program));
  expect_golden("layers/golden/" + name + "_logits.txt",
                kernels::print(trace_logits(model, catalog, 1, 4).program));
}

TEST(Golden, TinyLlama) {
  expect_goldens("tiny_llama",
                 llama_config({.vocab = 11, .dim = 8, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 12}));
}

TEST(Golden, TinyGpt2) {
  expect_goldens("tiny_gpt2", gpt2_config({.vocab = 11, .dim = 8, .layers = 1, .heads = 2, .context = 6}));
}

TEST(Golden, TinyEncoderDecoder) {
  expect_goldens(
      "tiny_encoder_decoder",
      encoder_decoder_config(
          {.vocab = 11, .dim = 8, .layers = 1, .heads = 2, .kv_heads = 1, .ffn = 12, .tied = true}));
}

// Every form of layer that may stand in a Llama's place, at once.
TEST(Golden, Forms) {
  CausalLM::Config model =
      llama_config({.vocab = 11, .dim = 8, .layers = 1, .heads = 4, .kv_heads = 2, .ffn = 12, .tied = true});
  ClassTable classes;
  add_layer_classes(classes);
  replace(model, "TransformerLayer", "HybridNormLayer{}", classes);
  replace(model, "RMSNorm", "GemmaRMSNorm{}", classes);
  set(model, "decoder.norm", "IdentityNorm{}", classes);
  set(model, "decoder.head", "SoftCap{cap=30}", classes);
  set(model, "decoder.embedding", "ScaledEmbedding{}", classes);
  set(model, "loss", "RegularizedCrossEntropy{label_smoothing=0.1 z_loss=0.0001}", classes);
  wrap(model, {.where = "**.q_proj"}, *parse("Lora{rank=2}", classes, "lora"), "base", classes);
  wrap(model, {.where = "**.v_proj"}, *parse("Dora{rank=2}", classes, "dora"), "base", classes);
  expect_golden("layers/golden/forms_config.txt", print(model));
  expect_golden("layers/golden/forms_parameters.txt", parameter_table(model));
}

// Layers that differ, and what may stand in them.
TEST(Golden, Varied) {
  ClassTable classes;
  add_layer_classes(classes);
  CausalLM::Config model =
      llama_config({.vocab = 11, .dim = 8, .layers = 4, .heads = 2, .kv_heads = 2, .ffn = 12, .tied = true});
  replace(model, "RotaryPosition", "YarnRotaryPosition{factor=4 original_length=64}", classes);
  replace(
      model, "FeedForward",
      "MoE{num_experts=2 gating=TopK{regularizers=[]} shared=SigmoidGated{base=FeedForward{hidden_dim=4}}}",
      classes);
  replace(model, "Stack",
          "HeterogeneousStack{overrides=[LayerOverride{where=attention.mask with=SlidingWindow{window=3} "
          "every=2}, "
          "LayerOverride{where=attention with=CrossLayerAttention{num_heads=2} layers=[1]}, "
          "LayerOverride{where=attention with=LatentAttention{num_heads=2 kv_rank=3 q_rank=5 head_dim=4 "
          "rotary_dim=2} "
          "layers=[2]}]}",
          classes);
  replace(model, "CrossEntropy", "ChunkedLoss{chunk_size=4}", classes);
  set(model, "decoder.positions", "SinusoidalPosition{}", classes);
  expect_goldens("varied", model);
}

TEST(Golden, TinyMoe) {
  ClassTable classes;
  add_layer_classes(classes);
  CausalLM::Config model =
      llama_config({.vocab = 11, .dim = 8, .layers = 1, .heads = 2, .kv_heads = 2, .ffn = 12, .tied = true});
  replace(
      model, "FeedForward",
      "MoE{num_experts=4 gating=TopK{capacity=Capacity{} regularizers=[LoadBalancingLoss{}, RouterZLoss{}, "
      "LossFreeBalancing{}]} "
      "shared=FeedForward{hidden_dim=4}}",
      classes);
  expect_goldens("tiny_moe", model);
}

}  // namespace
}  // namespace meshloom::layers
