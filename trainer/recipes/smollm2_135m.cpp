#include "layers/models/models.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {

// Shape: the config.json of HuggingFaceTB/SmolLM2-135M.
TrainerConfig smollm2_135m() {
  TrainerConfig config;
  config.model = layers::llama_config({.vocab = 49152,
                                       .dim = 576,
                                       .layers = 30,
                                       .heads = 9,
                                       .kv_heads = 3,
                                       .ffn = 1536,
                                       .tied = true,
                                       .theta = 100000});
  config.batch = 4;
  config.sequence = 512;
  config.steps = 100000;
  config.eval_every = 500;
  config.eval_batches = 16;
  config.checkpoint_every = 500;
  set_adamw(config, {.peak_learning_rate = 1e-3, .warmup_steps = 1000});
  return config;
}

}  // namespace meshloom::trainer
