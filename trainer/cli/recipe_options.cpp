#include "trainer/cli/recipe_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/config/field.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/command.h"
#include "trainer/compose/tuning/tuning.h"
#include "trainer/config/modifier.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/jsonl/jsonl_prompts.h"
#include "trainer/data/text/find_files.h"
#include "trainer/data/text/hub_name.h"
#include "trainer/io/file.h"
#include "trainer/io/shell_word.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/apply.h"
#include "trainer/rules/hardware_rule.h"
#include "trainer/rules/place.h"

namespace meshloom::trainer {
namespace {

std::pair<std::string, std::string> split(const std::string& text, char at, const std::string& option,
                                          const std::string& form) {
  const std::size_t place = text.find(at);
  if (place == std::string::npos || place == 0) throw Error(option, "must read " + form, "'" + text + "'");
  return {text.substr(0, place), text.substr(place + 1)};
}

// "Modifier{...}, Modifier{...}"
std::vector<layers::Child<ModifierConfig>> modifiers_of(const std::string& text,
                                                        const layers::ClassTable& classes) {
  Chain chain;
  layers::set(chain, "modifiers", "[" + text + "]", classes);
  return chain.modifiers;
}

// "PATTERN => Modifier{...}, Modifier{...}"
void add_rule(TrainerConfig& config, const std::string& text, const layers::ClassTable& classes) {
  const std::size_t arrow = text.find("=>");
  if (arrow == std::string::npos)
    throw Error("--rule", "must read PATTERN => Modifier{...}[, Modifier{...}]", "'" + text + "'");
  std::string pattern = text.substr(0, arrow);
  pattern.erase(pattern.find_last_not_of(' ') + 1);
  MeshRuleConfig rule;
  rule.pattern = pattern;
  rule.modifiers = modifiers_of(text.substr(arrow + 2), classes);
  config.mesh_rules.insert(config.mesh_rules.begin(), layers::Child<MeshRuleConfig>(rule));
}

// The recipe of a checkpoint without its choice of hardware and data.
TrainerConfig recipe_of_checkpoint(const std::string& directory, const layers::ClassTable& classes) {
  const Checkpoint checkpoint = open_newest(directory, say_note);
  // The recipe names the tokenizer's files in the checkpoint, which are read later, so the checkpoint stays
  // locked.
  static std::vector<std::shared_ptr<const CheckpointReadLock>> held;
  held.push_back(checkpoint.lock);
  TrainerConfig tree = recipe_of(checkpoint, classes);
  tree.hardware = tree.device = tree.profile = "";
  tree.kernels.clear();
  tree.input->files.clear();
  tree.input->eval_files.clear();
  if (auto* chat = tree.input.as<ChatInputConfig>())
    chat->chat_time.reset();  // it belongs to the previous run
  return tree;
}

// Chooses the input class for the files of --data.
void choose_input(TrainerConfig& tree, const std::vector<std::string>& files, bool prompts,
                  const layers::ClassTable& classes) {
  if (files.empty()) return;
  const char* wanted = prompts ? "JsonlPrompts" : "JsonlFiles";
  if (tree.input.as<TextFilesConfig>() && all_jsonl(find_files(files).files, "--data"))
    layers::replace(tree, "TextFiles", wanted, classes);
  else if (prompts ? tree.input.as<JsonlFilesConfig>() != nullptr : tree.input->prompts() != nullptr)
    layers::replace(tree, std::string(tree.input->class_name()), wanted, classes);
}

// CLI11 takes -1 for 2^64 - 1, and names a type of C++ where a fraction stands. "" = a whole number, and perhaps a unit.
std::string refuse_size(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' '), end = text.find_first_not_of("0123456789 ");
  const std::size_t digits = begin == std::string::npos ? 0 : std::min(end, text.size()) - begin;
  if (digits > 0 && digits <= 18 &&
      (end == std::string::npos || std::isalpha(static_cast<unsigned char>(text[end]))))
    return {};
  return "must be a whole number of bytes, or of KiB, MiB or GiB, such as 8GiB; found '" + text + "'";
}

}  // namespace

void apply_modify(TrainerConfig& config, const std::vector<std::string>& texts,
                  const layers::ClassTable& classes) {
  std::vector<layers::Child<ModifierConfig>> modifiers;  // of all options, as messages number them
  for (const std::string& text : texts) {
    const auto more = modifiers_of(text, classes);
    if (more.empty()) throw Error("--modify", "must name a modifier", "'" + text + "'");
    modifiers.insert(modifiers.end(), more.begin(), more.end());
  }
  for (const std::string& note : apply_modifiers(config, modifiers, "--modify", classes).no_ops)
    say_note(note);
}

void RecipeOptions::add_to(CLI::App& command) {
  auto* name = command.add_option("recipe", recipe, "A recipe's name (see meshloom recipes)");
  auto* file = command.add_option("--config", config, "A recipe file, as printed by meshloom config");
  name->excludes(file);
  command
      .add_option("--set", set,
                  "PATH=VALUE: sets one field of the recipe (see meshloom classes); may be repeated")
      ->allow_extra_args(false)
      ->type_name("PATH=VALUE");
  command
      .add_option(
          "--replace", replace,
          "CLASS=CLASS{FIELD=VALUE ...}: replaces every node of a class, keeping the fields that both "
          "classes have with the same meaning (see meshloom classes)")
      ->allow_extra_args(false)
      ->type_name("CLASS=CLASS{...}");
  add_modify_option(command, modify,
                    "MODIFIER{...}: edits the nodes that it selects, such as "
                    "'Adapt{with=Lora{rank=8} where=\"**.attention.{q,v}_proj\"}'; before --set, in order");
  command
      .add_option("--rule", rules,
                  "PATTERN => MODIFIER{...}: adds a mesh rule before the recipe's own, such as "
                  "'cpu-.* => SetKernel{op=matmul variant=naive}'")
      ->allow_extra_args(false)
      ->type_name("PATTERN => MODIFIER{...}");
  command.add_option("--batch", batch, "Rows of one step; same as --set batch=N")
      ->check(integer_from(1))
      ->type_name("N");
  command
      .add_option("--lr", learning_rate,
                  "The peak learning rate, which the schedule multiplies; same as --set "
                  "learner.peak_learning_rate=X")
      ->type_name("X");
  command
      .add_option(
          "--memory", memory,
          "The most memory of the device that the run may take, such as 8GiB; same as --set memory=BYTES")
      ->transform(CLI::AsSizeValue(false))
      ->transform(CLI::Validator(refuse_size, ""))  // goes before the one above
      ->type_name("SIZE");
  command.add_flag(
      "--tuned", tuned,
      "Use the kernels that `meshloom bench tune` measured fastest on this device; same as the kernel rule "
      "KernelRule{variant=tuned} before the recipe's own");
  command.add_option("--selector", hardware.selector, kSelectorHelp)->type_name("NAME");
  command
      .add_option("--device", hardware.device, "BACKEND, BACKEND:INDEX or null:NAME (see meshloom devices)")
      ->type_name("ID");
  command.add_option("--as", hardware.as, "The profile to run as (see meshloom profiles)")
      ->type_name("PROFILE");
}

std::string RecipeOptions::shell_arguments() const {
  std::string text;
  const auto add = [&](const std::string& option, const std::string& value) {
    if (!value.empty()) text += (option.empty() ? " " : " " + option + " ") + shell_word(value);
  };
  add("", recipe);
  add("--config", config);
  add("--init", init);
  for (const std::string& value : data) add("--data", value);
  for (const std::string& value : eval_data) add("--eval-data", value);
  add("--reward", reward);
  for (const std::string& value : replace) add("--replace", value);
  for (const std::string& value : modify) add("--modify", value);
  for (const std::string& value : set) add("--set", value);
  for (const std::string& value : rules) add("--rule", value);
  if (tuned) text += " --tuned";
  add("--selector", hardware.selector);
  add("--device", hardware.device);
  add("--as", hardware.as);
  if (batch != 0) add("--batch", std::to_string(batch));
  if (memory != 0) add("--memory", fmt::format("{}B", memory));
  if (learning_rate) add("--lr", fmt::format("{}", *learning_rate));
  if (steps != 0) add("--steps", std::to_string(steps));
  if (epochs != 0) add("--epochs", fmt::format("{}", epochs));
  return text;
}

std::int64_t RecipeOptions::set_mesh(const std::string& text, std::int64_t ranks) {
  if (text.empty() && ranks < 2) return 1;
  MeshConfig mesh;
  mesh.parse(text.empty() ? "data=-1" : text, ranks);
  for (const MeshAxis& axis : mesh.axes())
    if (axis.size > 1) set.push_back("mesh." + axis.name + "=" + std::to_string(axis.size));
  return mesh.size();
}

void RecipeOptions::add_run_to(CLI::App& command) {
  command
      .add_option("--init", init,
                  "Start from the parameters of a checkpoint, such as an imported one, with a new optimizer. "
                  "Without a recipe, the checkpoint's own is used")
      ->type_name("DIR");
  command
      .add_option(
          "--data", data,
          "Text files (UTF-8), or .jsonl files with one example per line: {\"prompt\", \"completion\"}, "
          "{\"messages\"} or {\"text\"}, of which the answers are trained on, or {\"prompt\", \"chosen\", "
          "\"rejected\"} "
          "for a loss of preferences. A folder stands for all files "
          "below it, and a quoted pattern such as 'data/*.txt' for the files that match, sorted by name")
      ->type_name("FILE");
  command
      .add_option("--eval-data", eval_data,
                  "Files to evaluate on; without them the end of the training data is held out")
      ->type_name("FILE");
  auto* until = command
                    .add_option("--steps", steps,
                                "Stop after this step. The learning rate's schedule keeps its own length "
                                "(learner.schedule.total_steps), so that a run can be stopped and continued")
                    ->check(integer_from(1));
  command
      .add_option(
          "--epochs", epochs,
          "Stop when the training data has been read this many times, such as 3 or 0.5. The learning rate's "
          "schedule gets the same length. The data is read once more to count its rows")
      ->check([](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value > 0 && value < 1e9) return {};
        return "must be a number above 0 and below 1e9; found '" + text + "'";
      })
      ->type_name("N")
      ->excludes(until);
}

bool RecipeOptions::sets(const std::string& path) const {
  return std::any_of(set.begin(), set.end(), [&](const std::string& text) {
    const std::string given = text.substr(0, text.find('='));
    return given == path || path.starts_with(given + ".");  // or a parent of it
  });
}

std::vector<RecipeOptions::Assignment> RecipeOptions::assignments() const {
  std::vector<Assignment> all;
  for (const std::string& text : set) {
    const auto [path, value] = split(text, '=', "--set", "PATH=VALUE");
    all.push_back({"--set " + text, path, value});
  }
  const auto set_field = [&](const char* option, const char* path, const std::string& value) {
    if (sets(path))
      throw Error(option, fmt::format("is the same as --set {}: only one of them may be given", path),
                  "both");
    if (!value.empty()) all.push_back({option, path, value});
  };
  if (batch != 0) set_field("--batch", "batch", std::to_string(batch));
  if (memory != 0) set_field("--memory", "memory", std::to_string(memory));
  if (learning_rate) set_field("--lr", "learner.peak_learning_rate", fmt::format("{}", *learning_rate));
  if (steps != 0) set_field("--steps", "steps", std::to_string(steps));
  if (epochs != 0) set_field("--epochs", "steps", "");
  return all;
}

// Rules that name a variant which the backend does not have are refused where they stand, before anything is composed.
void RecipeOptions::check_variants(const TrainerConfig& asked, const TrainerConfig& tree,
                                   const Resolution& resolution, const Registries& registries) const {
  // The device null has the kernels of the driver that it stands for, which only opening it would tell: the composer knows.
  const std::string backend = tree.device.substr(0, tree.device.find(':'));
  const std::vector<std::string> backends =
      backend == "null" ? registries.devices.backends() : std::vector{backend};
  const auto refuse = [](const std::string& message) {
    const std::size_t colon = message.find(": ");
    throw Error(message.substr(0, colon), message.substr(colon + 2));
  };
  std::vector<std::string> found;
  if (resolution.rule >= 0)
    found = unknown_variants(asked.mesh_rules[static_cast<std::size_t>(resolution.rule)]->modifiers,
                             "mesh_rules[" + std::to_string(resolution.rule) + "].modifiers", backends,
                             registries.catalog);
  if (!found.empty()) refuse(located(found.front(), registries));
  for (const HardwareRule& rule : shipped_hardware_rules(registries.classes))
    if (rule.name == resolution.hardware_rule)
      for (const std::string& message :
           unknown_variants(rule.config.modifiers, "modifiers", backends, registries.catalog))
        refuse(trainer::located(rule.file, rule.lines, message));
  for (std::size_t i = 0; i < asked.kernels.size(); ++i) {
    const std::string path = "kernels[" + std::to_string(i) + "]", place = located(path, registries);
    if (place == path) continue;  // of no file: the composer says it
    if (const std::string why =
            unknown_variant(asked.kernels[i]->op, asked.kernels[i]->variant, backends, registries.catalog);
        !why.empty())
      refuse(place + ": " + why);
  }
}

void RecipeOptions::apply_epochs(TrainerConfig& tree) const {
  if (epochs == 0) return;
  if (tree.input->files.empty())
    throw Error("--epochs", "needs the data, to count its rows: --data names it", "no file");
  tree.check();
  const std::unique_ptr<Tokenizer> tokenizer = tree.input->tokenizer->make();
  const std::unique_ptr<Dataset> opened =
      tree.input->open(*tokenizer, layers::vocabulary(*tree.model), tree.sequence);
  const std::int64_t rows =
      opened->train(tree.batch, static_cast<std::uint64_t>(tree.seed))->rows_per_epoch();
  // Tolerates the rounding of factors such as 0.1 by a thousandth of a row.
  const double needed =
      std::ceil((epochs * static_cast<double>(rows) - 1e-3) / static_cast<double>(tree.batch));
  if (needed > std::numeric_limits<std::int32_t>::max())
    throw Error("--epochs", "must be below 2^31 steps", fmt::format("{:.0f}", needed));
  tree.steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(needed));
  const std::string total = "learner.schedule.total_steps";
  const bool whole =
      layers::with_field(*tree.learner->schedule, "total_steps", [](const layers::Field&) {}) && !sets(total);
  if (whole) layers::set(tree, total, std::to_string(tree.steps), {});
  say_note(fmt::format("--epochs {}: {} rows of {} tokens in batches of {} make {} steps{}", epochs, rows,
                       tree.sequence, tree.batch, tree.steps,
                       whole ? "; the learning rate's schedule has the same length" : ""));
}

void add_modify_option(CLI::App& command, std::vector<std::string>& modify, const std::string& help) {
  command.add_option("--modify", modify, help)->allow_extra_args(false)->type_name("MODIFIER{...}");
}

TrainerConfig RecipeOptions::recipe_tree(const Registries& registries) const {
  if (recipe.empty() && config.empty() && init.empty())
    throw Error("recipe", "a recipe's name or --config FILE must be given; see `meshloom recipes`",
                "neither");
  if (!init.empty()) refuse_hub_checkpoint(init, "--init");
  TrainerConfig tree = !recipe.empty() ? find_recipe(recipe).make()
                       : !config.empty()
                           ? read_recipe(config, "--config '" + config + "'", registries.classes)
                           : recipe_of_checkpoint(init, registries.classes);
  std::vector<std::string> files = data;
  files.insert(files.end(), eval_data.begin(), eval_data.end());
  choose_input(tree, files, prompts || !reward.empty(), registries.classes);
  for (const std::string& text : replace) {
    const auto [from, to] = split(text, '=', "--replace", "CLASS=CLASS{...}");
    std::vector<std::string> dropped;
    const TrainerConfig before = tree;
    layers::replace(tree, from, to, registries.classes, &dropped);
    if (layers::diff(before, tree).empty())
      say_note(fmt::format("--replace {}: changes nothing, because the recipe already says the same", text));
    if (!dropped.empty())
      say_note(fmt::format("--replace {}: the new class does not have {}", from, hal::join(dropped)));
  }
  apply_modify(tree, modify, registries.classes);
  for (const Assignment& one : assignments())
    if (!layers::set(tree, one.path, one.value, registries.classes) && one.option.starts_with("--set"))
      say_note(fmt::format("{}: changes nothing, because the field already has this value", one.option));
  for (auto it = rules.rbegin(); it != rules.rend(); ++it) add_rule(tree, *it, registries.classes);
  if (tuned) {
    KernelRuleConfig rule;
    rule.variant = std::string(kTunedVariant);
    tree.kernels.insert(tree.kernels.begin(), layers::Child<KernelRuleConfig>(rule));
  }
  tree.input->files.insert(tree.input->files.end(), data.begin(), data.end());
  tree.input->eval_files.insert(tree.input->eval_files.end(), eval_data.begin(), eval_data.end());
  return tree;
}

std::string RecipeOptions::located(const std::string& message, const Registries& registries) const {
  const auto names = [](const std::vector<std::string>& texts, const std::string& field) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(field) != std::string::npos; });
  };
  // Rules of the command line stand before the recipe's own.
  std::string path = message;
  for (const auto& [field, before] :
       {std::pair<std::string, std::size_t>{"mesh_rules", rules.size()}, {"kernels", tuned ? 1 : 0}}) {
    const std::string list = field + "[";
    if (!message.starts_with(list)) continue;
    const std::size_t index = std::stoul(message.substr(list.size())), end = message.find(']');
    if (config.empty() || names(set, field) || names(modify, field) || names(replace, field) ||
        index < before)
      return message;
    path = list + std::to_string(index - before) + message.substr(end);
    const std::string found =
        trainer::located(config, layers::lines_of(read_file(config, "--config"), registries.classes), path);
    return found == path ? message : found;
  }
  return message;
}

TrainerConfig RecipeOptions::resolved(const Registries& registries,
                                      const std::function<void(const std::string&)>& note) const {
  TrainerConfig tree = recipe_tree(registries);
  if (inference) tree.kernels.clear();
  const TrainerConfig asked = tree;
  HardwareRequest request = hardware;
  for (const Assignment& one : assignments()) request.fixed.push_back(one.path);
  Resolution resolution;
  try {
    resolution = resolve(tree, request, registries.devices, registries.classes);
  } catch (const Error& error) {
    throw Error(located(error.where(), registries), error.rule(), error.found());
  }
  check_variants(asked, tree, resolution, registries);
  for (const std::string& said : resolution.notes) note(said);
  if (resolution.rule >= 0)
    for (const Assignment& one : assignments()) {
      if (one.path.starts_with("mesh_rules")) continue;
      if (layers::get(tree, one.path) != layers::get(asked, one.path))
        note(fmt::format("{}: mesh rule {} sets it to {}", one.option, resolution.rule,
                         layers::get(tree, one.path)));
    }
  apply_epochs(tree);
  tree.check();
  return tree;
}

RecipeOptions::Opened RecipeOptions::opened(const Registries& registries,
                                            const FitOptions& fit_options) const {
  // The first line says which product the run uses, where that is not the one that was named.
  std::vector<std::string> notes;
  Opened run;
  const auto say = [&] {
    for (const std::string& note : std::exchange(notes, {})) say_note(note);
  };
  try {
    run.asked = resolved(registries, [&](const std::string& text) { notes.push_back(text); });
    run.config = run.asked;
    run.device = open_device(run.config, registries.devices, say_note);
  } catch (...) {
    say();
    throw;
  }
  say();
  if (!run.config.fit) {
    const std::string cut =
        cut_scores(run.config, run.device->info(), registries.catalog, registries.classes);
    if (!cut.empty()) say_note(cut);
    return run;
  }
  FitOptions choice = fit_options;
  for (const Assignment& one : assignments()) choice.fixed.push_back(one.path);
  const std::string chosen =
      fit(run.config, run.device->info(), registries.catalog, registries.classes, choice);
  if (!chosen.empty()) say_note(chosen);
  return run;
}

}  // namespace meshloom::trainer
