#include "layers/models/models.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {

// Shape: meta-llama/Llama-3.2-1B, without its long-context scaling of the rotary frequencies.
TrainerConfig llama_1b() {
  TrainerConfig config;
  config.model = layers::llama_config({.vocab = 128256,
                                       .dim = 2048,
                                       .layers = 16,
                                       .heads = 32,
                                       .kv_heads = 8,
                                       .ffn = 8192,
                                       .tied = true,
                                       .theta = 500000});
  config.batch = 4;
  config.sequence = 2048;
  config.steps = 100000;
  config.eval_every = 500;
  config.checkpoint_every = 500;
  set_adamw(config, {.peak_learning_rate = 3e-4, .warmup_steps = 2000});
  return config;
}

// Touvron et al., 2023.
TrainerConfig llama2_7b() {
  TrainerConfig config;
  config.model = layers::llama_config(
      {.vocab = 32000, .dim = 4096, .layers = 32, .heads = 32, .kv_heads = 32, .ffn = 11008});
  config.batch = 1;
  config.sequence = 4096;
  config.steps = 100000;
  config.eval_every = 500;
  config.checkpoint_every = 500;
  set_adamw(config, {.peak_learning_rate = 3e-4, .warmup_steps = 2000});
  return config;
}

}  // namespace meshloom::trainer
