// The shipped recipes: whole runs that lack only the training text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct Recipe {
  std::string name, about;
  TrainerConfig (*make)() = nullptr;
  bool for_mesh = false;  // it needs the memory of many devices
};

// Smallest first.
const std::vector<Recipe>& recipes();
// Throws Error that suggests the nearest name.
const Recipe& find_recipe(std::string_view name);

TrainerConfig tiny();
TrainerConfig tiny_pairs();
TrainerConfig byte_llama_2m();
TrainerConfig byte_llama_10m();
TrainerConfig gpt2_124m();
TrainerConfig smollm2_135m();
TrainerConfig llama_1b();
TrainerConfig llama2_7b();
TrainerConfig qwen3_30b_a3b();
TrainerConfig llama2_70b();
TrainerConfig dense_150b();

// All recipes use AdamW with a warm-up and a cosine schedule over the run's steps.
struct Optimization {
  double peak_learning_rate = 1e-3;
  std::int64_t warmup_steps = 100;
  double final_fraction = 0.1;
  double beta2 = 0.95;
  double weight_decay = 0.1;
};
void set_adamw(TrainerConfig& config, const Optimization& optimization);

}  // namespace meshloom::trainer
