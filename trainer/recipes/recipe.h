// The recipes shipped: whole runs, ready but for the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct Recipe {
  std::string name, about;
  TrainerConfig (*make)() = nullptr;
};

// Smallest first.
const std::vector<Recipe>& recipes();
// Throws Error with a suggestion.
const Recipe& find_recipe(std::string_view name);

TrainerConfig tiny();
TrainerConfig tiny_pairs();
TrainerConfig byte_llama_2m();
TrainerConfig byte_llama_10m();
TrainerConfig gpt2_124m();
TrainerConfig smollm2_135m();
TrainerConfig llama_1b();
TrainerConfig llama2_7b();

// What the recipes have in common: AdamW with warm-up and cosine over the run's steps.
struct Optimization {
  double peak_learning_rate = 1e-3;
  std::int64_t warmup_steps = 100;
  double final_fraction = 0.1;
  double beta2 = 0.95;
  double weight_decay = 0.1;
};
void set_adamw(TrainerConfig& config, const Optimization& optimization);

}  // namespace meshloom::trainer
