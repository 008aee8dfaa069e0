// The options that say which run is meant, shared by config, plan and train.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "trainer/cli/command.h"
#include "trainer/rules/resolve.h"

namespace meshloom::trainer {

struct RecipeOptions {
  std::string recipe, config;                 // a name, or a file of `meshloom config`
  std::string init;                           // a checkpoint: its recipe, where neither is given
  std::vector<std::string> set, replace, modify, rules;
  std::vector<std::string> data, eval_data;   // files for the input; .jsonl makes it JsonlFiles
  std::int64_t steps = 0;                     // 0 = the recipe's
  HardwareRequest hardware;
  bool tuned = false;                         // choose kernels as `meshloom bench tune` measured them

  void add_to(CLI::App& command);
  // The recipe with --replace, --modify, --set and --rule applied, but not for any hardware yet. Notes go to
  // stderr.
  TrainerConfig recipe_tree(const Context& context) const;
  // The same, resolved for the hardware.
  TrainerConfig resolved(const Context& context) const;
  // The options that were given as a shell reads them, each after a space: what to paste behind a command's name.
  std::string words() const;
  bool names_hardware() const {
    return !hardware.selector.empty() || !hardware.device.empty() || !hardware.as.empty();
  }
};

// In quotes where a shell would take it apart.
std::string quoted_word(const std::string& word);

constexpr const char* kSelectorHelp =
    "The hardware's name: BACKEND-PROFILE-N or BACKEND-as-PROFILE-N, such as vulkan-rx7900xtx-1 or "
    "cpu-as-tpu-v5e-8. It picks backend and profile, and mesh rules match against it. N is the number of devices "
    "the rules are told of; the mesh stays as the recipe has it";

}  // namespace meshloom::trainer
