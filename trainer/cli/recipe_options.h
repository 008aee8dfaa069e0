// The options that say which run is meant, shared by config, plan and train.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/cli/command.h"
#include "trainer/rules/resolve.h"

namespace meshloom::trainer {

struct RecipeOptions {
  std::string recipe, config;  // a name, or a file of `meshloom config`
  std::string init;            // a checkpoint: its recipe, where neither is given
  std::vector<std::string> set, replace, modify, rules;
  std::vector<std::string> data, eval_data;  // files for the input; .jsonl makes it JsonlFiles
  std::int64_t steps = 0, batch = 0;         // 0 = the recipe's
  double epochs = 0;                         // 0 = as many as the steps are
  std::optional<double> learning_rate;       // at the schedule's peak; none = the recipe's
  HardwareRequest hardware;
  bool tuned = false;  // choose kernels as `meshloom bench tune` measured them

  void add_to(CLI::App& command);
  // Options that say what the run starts from, reads, and how long it goes on.
  void add_run_to(CLI::App& command);
  // The recipe with --replace, --modify, --set, --rule and what stands for a --set applied, but not for any hardware
  // yet. Notes go to stderr.
  TrainerConfig recipe_tree(const Context& context) const;
  // Makes steps of --epochs, where it was given, by reading the data; the learning rate's schedule becomes as long,
  // unless --set says how long it is.
  void apply_epochs(TrainerConfig& tree) const;
  // The recipe's tree, resolved for the hardware, with its epochs applied.
  TrainerConfig resolved(const Context& context) const;
  // The options that were given as a shell reads them, each after a space: what to paste behind a command's name.
  std::string words() const;
  bool names_hardware() const {
    return !hardware.selector.empty() || !hardware.device.empty() || !hardware.as.empty();
  }

 private:
  struct Assignment {
    std::string option, path, value;
  };
  // --set, and the options that stand for one, in this order. Throws Error where two say the same field.
  std::vector<Assignment> assignments() const;
  bool sets(const std::string& path) const;  // by --set
};

constexpr const char* kSelectorHelp =
    "The hardware's name: BACKEND-PROFILE-N or BACKEND-as-PROFILE-N, such as vulkan-rx7900xtx-1 or "
    "cpu-as-tpu-v5e-8. It picks backend and profile, and mesh rules match against it. N is the number of "
    "devices "
    "the rules are told of; the mesh stays as the recipe has it";

}  // namespace meshloom::trainer
