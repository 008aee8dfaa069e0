// The options that describe a run, shared by config, plan and train.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/cli/command.h"
#include "trainer/rules/fit.h"
#include "trainer/rules/resolve.h"

namespace meshloom::trainer {

struct RecipeOptions {
  std::string recipe, config;  // a name, or a file of `meshloom config`
  std::string init;            // a checkpoint, whose recipe is used when neither is given
  std::vector<std::string> set, replace, modify, rules;
  std::vector<std::string> data, eval_data;  // files for the input; with .jsonl files it becomes JsonlFiles
  std::string reward;                   // a program that rewards answers; with one, .jsonl files hold prompts
  bool prompts = false;                 // .jsonl files hold prompts (JsonlPrompts) without one too
  std::int64_t steps = 0, batch = 0;    // 0 = the recipe's
  double epochs = 0;                    // 0 = not given
  std::optional<double> learning_rate;  // the peak; none = the recipe's
  std::uint64_t memory = 0;             // bytes; 0 = the recipe's
  HardwareRequest hardware;
  bool tuned = false;  // choose kernels as `meshloom bench tune` measured them
  // Drops the recipe's kernel rules before hardware rules are applied, as inference_recipe() does: they were made for the calls
  // of training. No option sets it.
  bool inference = false;

  void add_to(CLI::App& command);
  // Adds the options for the checkpoint to start from, the data, and the length of the run.
  void add_run_to(CLI::App& command);
  // The recipe after --replace, --modify, --set, --rule and the options that set a field, not yet resolved
  // for hardware. Prints notes to stderr.
  TrainerConfig recipe_tree(const Registries& registries) const;
  // If --epochs was given, reads the data and sets `steps`; the learning rate's schedule gets the same
  // length, unless --set sets it.
  void apply_epochs(TrainerConfig& tree) const;
  // The recipe, resolved for the hardware, with --epochs applied; `fit` is still to be done.
  TrainerConfig resolved(const Registries& registries) const { return resolved(registries, say_note); }
  struct Opened {
    TrainerConfig asked;  // resolved; `fit` is still to be done
    TrainerConfig config;
    std::unique_ptr<hal::Device> device;
  };
  // The recipe as it runs, and its device: resolved, and edited so that it fits where that is asked for (fit.h).
  Opened opened(const Registries& registries, const FitOptions& fit_options = {}) const;
  // A message that begins with a path of the recipe's file ("mesh_rules[0].modifiers[1] SetKernel: ..."), with the file and the
  // line before it.
  std::string located(const std::string& message, const Registries& registries) const;
  // The given options for a shell, with a space before each, to be pasted after a command's name.
  std::string shell_arguments() const;
  // Sets the fields of the mesh to those of "data=2,fsdp=-1", where -1 is what is left of `ranks` (0 = as many as the mesh has).
  // Without a mesh all ranks are of the axis data. Returns how many there are. Throws Error.
  std::int64_t set_mesh(const std::string& mesh, std::int64_t ranks);
  bool names_device() const { return !hardware.selector.empty() || !hardware.device.empty(); }
  bool names_hardware() const { return names_device() || !hardware.as.empty(); }

 private:
  TrainerConfig resolved(const Registries& registries,
                         const std::function<void(const std::string&)>& note) const;
  struct Assignment {
    std::string option, path, value;
  };
  // The fields set by --set and by other options, in this order. Throws Error when two set the same field.
  std::vector<Assignment> assignments() const;
  bool sets(const std::string& path) const;  // by --set
  void check_variants(const TrainerConfig& asked, const TrainerConfig& tree, const Resolution& resolution,
                      const Registries& registries) const;
};

// The option --modify, which may be repeated, and what it does to a recipe. Prints notes.
void add_modify_option(CLI::App& command, std::vector<std::string>& modify, const std::string& help);
void apply_modify(TrainerConfig& config, const std::vector<std::string>& texts,
                  const layers::ClassTable& classes);

constexpr const char* kSelectorHelp =
    "The hardware's name, BACKEND-PROFILE-N or BACKEND-as-PROFILE-N, such as vulkan-rx7900xtx-1 or "
    "cpu-as-tpu-v5e-8. It selects backend and profile, and mesh rules match it. N is the number of devices "
    "for the rules; the mesh does not change";

}  // namespace meshloom::trainer
