#include "layers/models/models.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {

// Two layers with all that a Llama has: grouped-query heads, a gate, rotary positions, an untied head.
TrainerConfig tiny() {
  TrainerConfig config;
  config.model =
      layers::llama_config({.vocab = 256, .dim = 64, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 192});
  config.batch = 4;
  config.sequence = 64;
  config.steps = 300;
  config.eval_every = 50;
  config.eval_batches = 4;
  config.checkpoint_every = 50;
  set_adamw(config, {.peak_learning_rate = 3e-3, .warmup_steps = 20});
  return config;
}

}  // namespace meshloom::trainer
