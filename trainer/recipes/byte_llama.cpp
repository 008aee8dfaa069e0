#include "layers/models/models.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {

TrainerConfig byte_llama_2m() {
  TrainerConfig config;
  config.model = layers::llama_config(
      {.vocab = 256, .dim = 192, .layers = 6, .heads = 6, .kv_heads = 2, .ffn = 512, .tied = true});
  config.batch = 8;
  config.sequence = 256;
  config.steps = 1200;
  config.eval_every = 200;
  config.eval_batches = 16;
  config.checkpoint_every = 200;
  set_adamw(config, {.peak_learning_rate = 3e-3, .warmup_steps = 60, .final_fraction = 0.05, .beta2 = 0.98});
  return config;
}

TrainerConfig byte_llama_10m() {
  TrainerConfig config;
  config.model = layers::llama_config(
      {.vocab = 256, .dim = 384, .layers = 6, .heads = 6, .kv_heads = 2, .ffn = 1024, .tied = true});
  config.batch = 16;
  config.sequence = 256;
  config.steps = 4000;
  config.eval_every = 250;
  config.eval_batches = 16;
  config.checkpoint_every = 250;
  set_adamw(config,
            {.peak_learning_rate = 1.5e-3, .warmup_steps = 200, .final_fraction = 0.05, .beta2 = 0.98});
  return config;
}

}  // namespace meshloom::trainer
