// LoRA adapters as files: the directory that PEFT saves (adapter_config.json and adapter_model.safetensors), or a run of this project
// whose adapters are Lora (layers/adapters/lora.h). The reader trusts nothing.
// Source: huggingface/peft, LoraConfig and the names of its state dict.
#pragma once

#include <string>

#include "layers/config/config.h"
#include "trainer/inference/lora_adapter.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Reads the adapter in `directory` for a model, whose config is that of its recipe, with these slots. Throws Error naming the file,
// the rule and what was found.
LoraAdapter read_lora(const std::string& directory, const layers::Config& model, std::int64_t sequence,
                      const LoraSlotsOfPlan& slots, const kernels::Catalog& catalog,
                      const layers::ClassTable& classes, const Note& note);

// What adapter_config.json says about a module of the model, as transformers names it ("model.layers.0.self_attn.q_proj").
struct PeftConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;  // the factor is alpha / sqrt(rank) (Kalajdzievski, 2023)
  // Of modules whose name is the pattern, or ends with it behind a dot; the first that does counts.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;

  std::int64_t rank_of(const std::string& module) const;
  double scale_of(const std::string& module) const;  // of B A
};
// Throws Error (where = `where`) for what is not JSON or no LoRA, and for what is not built, by name.
PeftConfig parse_peft_config(const std::string& text, const std::string& where);

}  // namespace meshloom::trainer
