#include "layers/models/models.h"
#include "trainer/data/jsonl/jsonl_pairs.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {

// A byte-level encoder and decoder of two layers each, for pairs of prompt and completion.
TrainerConfig tiny_pairs() {
  TrainerConfig config;
  config.model = layers::encoder_decoder_config(
      {.vocab = 256, .dim = 64, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 192, .tied = true});
  config.input = JsonlPairsConfig{};
  config.batch = 16;
  config.sequence = 32;
  config.steps = 600;
  config.eval_every = 100;
  config.eval_batches = 4;
  config.checkpoint_every = 100;
  set_adamw(config, {.peak_learning_rate = 3e-3, .warmup_steps = 40});
  return config;
}

}  // namespace meshloom::trainer
