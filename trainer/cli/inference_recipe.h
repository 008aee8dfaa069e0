// What the commands that run a checkpoint have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/command.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/jsonl/chat_format.h"
#include "trainer/inference/engine.h"
#include "trainer/rules/resolve.h"

namespace meshloom::trainer {

// The checkpoint's recipe, edited by the texts of --modify, resolved for the hardware and checked. Its kernel rules are dropped: they
// were made for the calls of training, and variants are chosen again. Prints notes.
TrainerConfig inference_recipe(const Checkpoint& checkpoint, const HardwareRequest& hardware,
                               const Registries& registries, const std::vector<std::string>& modify = {});

// How the model is talked to, by its chat template. Prints notes. Throws Error where it has none, or an invalid one.
std::unique_ptr<ChatFormat> chat_format_of(const TrainerConfig& config, const Tokenizer& tokenizer);

// What both `serve` and `plan --serve` take: the sizes of an engine. Returns the options.
std::vector<CLI::Option*> add_engine_options(CLI::App& command, EngineOptions& engine);

// Options --selector, --device and --as.
void add_hardware_options(CLI::App& command, HardwareRequest& hardware);

}  // namespace meshloom::trainer
