// Models for many devices; one is planned, and seldom trained, on a machine that has none of them.
#include "layers/attention/qk_norm_projection.h"
#include "layers/models/models.h"
#include "layers/moe/moe.h"
#include "layers/norm/norm.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

void set_run(TrainerConfig& config, std::int64_t batch, std::int64_t sequence, double peak_learning_rate) {
  config.batch = batch;
  config.sequence = sequence;
  config.steps = 500000;
  config.eval_every = 1000;
  config.checkpoint_every = 1000;
  set_adamw(config, {.peak_learning_rate = peak_learning_rate, .warmup_steps = 2000});
}

}  // namespace

// Touvron et al., "Llama 2" (2023), table 1 and section 2.2, and the config.json of meta-llama/Llama-2-70b: 80 layers of 8192,
// 64 heads, 8 of keys, 28672 hidden features, a context of 4096 and 4 M tokens a step, which are 1024 rows.
TrainerConfig llama2_70b() {
  TrainerConfig config;
  config.model = layers::llama_config(
      {.vocab = 32000, .dim = 8192, .layers = 80, .heads = 64, .kv_heads = 8, .ffn = 28672});
  set_run(config, 1024, 4096, 1.5e-4);
  return config;
}

// Qwen3 technical report (2025), table 2, and the config.json of Qwen/Qwen3-30B-A3B: 48 layers of 2048, 32 heads of 128, 4 of
// keys, normed queries and keys, 128 experts of 768 hidden features, 8 of them for each token. 30.5 G parameters, of which a token
// uses 3.3 G.
TrainerConfig qwen3_30b_a3b() {
  TrainerConfig config;
  layers::CausalLM::Config model = layers::llama_config({.vocab = 151936,
                                                         .dim = 2048,
                                                         .layers = 48,
                                                         .heads = 32,
                                                         .kv_heads = 4,
                                                         .ffn = 768,
                                                         .theta = 1000000,
                                                         .eps = 1e-6,
                                                         .head_dim = 128});
  auto& stack = *model.decoder->stack.as<layers::Stack::Config>();
  auto& layer = *stack.layer.as<layers::TransformerLayer::Config>();
  auto& attention = *layer.attention.as<layers::Attention::Config>();
  layers::RMSNorm::Config norm;
  norm.eps = 1e-6;
  layers::QKNormProjection::Config normed;
  normed.norm = norm;
  attention.q_proj = normed;
  attention.k_proj = normed;
  layers::TopK::Config gating;
  gating.k = 8;
  layers::MoE::Config experts;
  static_cast<layers::FeedForward::Config&>(experts) = *layer.feed_forward.as<layers::FeedForward::Config>();
  experts.num_experts = 128;
  experts.gating = gating;
  layer.feed_forward = experts;
  config.model = model;
  set_run(config, 256, 2048, 3e-4);
  config.accumulation = 4;  // a row of all scores is 1.2 GB, and a micro-batch has one for each of 64 devices
  return config;
}

// A dense model of 150 G parameters, the size at which AXLearn (Apple, MLSys 2026) shows its scaling to 32,768 chips of TPU
// v5p. Its shape is not published; this is a Llama of 80 layers of 12288, as wide as GPT-3 (Brown et al., 2020, table 2.1), with 16
// heads of keys. 8192 rows of 4096 are 34 M tokens a step.
TrainerConfig dense_150b() {
  TrainerConfig config;
  config.model = layers::llama_config(
      {.vocab = 65536, .dim = 12288, .layers = 80, .heads = 96, .kv_heads = 16, .ffn = 40448});
  set_run(config, 8192, 4096, 1e-4);
  return config;
}

}  // namespace meshloom::trainer
