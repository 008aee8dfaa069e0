#include "layers/models/models.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {

// Shape: Radford et al., 2019; optimisation: Brown et al., 2020, for the 125M model.
TrainerConfig gpt2_124m() {
  TrainerConfig config;
  config.model = layers::gpt2_config({});
  config.batch = 4;
  config.sequence = 1024;
  config.steps = 100000;
  config.eval_every = 500;
  config.eval_batches = 16;
  config.checkpoint_every = 500;
  RematRuleConfig norms;  // cheaper to recompute than to keep
  norms.tag = "norm";
  norms.policy = "recompute";
  config.remat = {norms};
  set_adamw(config, {.peak_learning_rate = 6e-4, .warmup_steps = 700});
  return config;
}

}  // namespace meshloom::trainer
