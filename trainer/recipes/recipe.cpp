#include "trainer/recipes/recipe.h"

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/learner/adamw.h"
#include "trainer/learner/schedule.h"

namespace meshloom::trainer {

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{
      {"tiny", "a Llama that trains in seconds, for experiments and tests", tiny},
      {"tiny-pairs", "an encoder and a decoder that learn to answer prompts, in a minute", tiny_pairs},
      {"byte-llama-2m", "a byte-level Llama that trains in five minutes on four cores", byte_llama_2m},
      {"byte-llama-10m", "a byte-level Llama that trains in an hour on a few cores, or in minutes on a GPU",
       byte_llama_10m},
      {"gpt2-124m", "GPT-2 small", gpt2_124m},
      {"smollm2-135m", "the shape of SmolLM2 135M", smollm2_135m},
      {"llama-1b", "the shape of Llama 3.2 1B", llama_1b},
      {"llama2-7b", "the shape of Llama 2 7B", llama2_7b},
      {"qwen3-30b-a3b", "the shape of Qwen3 30B-A3B, with 128 experts", qwen3_30b_a3b, true},
      {"llama2-70b", "the shape of Llama 2 70B", llama2_70b, true},
      {"dense-150b", "a dense Llama of 150 G parameters", dense_150b, true},
  };
  return all;
}

const Recipe& find_recipe(std::string_view name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  throw Error("recipe", "must be one of " + hal::join(names) + hal::suggestion(name, names),
              "'" + std::string(name) + "'");
}

void set_adamw(TrainerConfig& config, const Optimization& optimization) {
  WarmupCosine::Config schedule;
  schedule.warmup_steps = optimization.warmup_steps;
  schedule.total_steps = config.steps;
  schedule.final_fraction = optimization.final_fraction;
  AdamW::Config adamw;
  adamw.peak_learning_rate = optimization.peak_learning_rate;
  adamw.beta2 = optimization.beta2;
  adamw.weight_decay = optimization.weight_decay;
  adamw.schedule = schedule;
  config.learner = adamw;
}

}  // namespace meshloom::trainer
