#include "trainer/cli/inference_recipe.h"

#include "trainer/cli/recipe_options.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/jsonl/jsonl_files.h"

namespace meshloom::trainer {

TrainerConfig inference_recipe(const Checkpoint& checkpoint, const HardwareRequest& hardware,
                               const Registries& registries) {
  TrainerConfig config = recipe_of(checkpoint, registries.classes);
  config.kernels.clear();
  const Resolution resolution = resolve(config, hardware, registries.devices, registries.classes);
  for (const std::string& note : resolution.notes) say_note(note);
  config.check();
  return config;
}

std::unique_ptr<ChatFormat> chat_format_of(const TrainerConfig& config, const Tokenizer& tokenizer) {
  const auto* jsonl = config.input.as<JsonlFilesConfig>();
  std::unique_ptr<ChatFormat> format =
      chat_format(jsonl ? jsonl->chat_template.value_or("") : "", *config.input->tokenizer, tokenizer, {},
                  !jsonl || jsonl->end_of_text);
  for (const std::string& note : format->notes()) say_note(note);
  return format;
}

void add_hardware_options(CLI::App& command, HardwareRequest& hardware) {
  command.add_option("--selector", hardware.selector, kSelectorHelp)->type_name("NAME");
  command.add_option("--device", hardware.device, "BACKEND or BACKEND:INDEX (as in training)");
  command.add_option("--as", hardware.as, "The profile to run as");
}

}  // namespace meshloom::trainer
