#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

// The recipe with this name or in this file.
TrainerConfig other_tree(const Registries& registries, const std::string& name) {
  RecipeOptions other;
  for (const Recipe& recipe : recipes())
    if (recipe.name == name) other.recipe = name;
  if (other.recipe.empty()) {
    std::error_code ignored;
    if (!std::filesystem::exists(name, ignored))
      throw Error("--against", "must be a recipe's name (see meshloom recipes) or a file", "'" + name + "'");
    other.config = name;
  }
  return other.recipe_tree(registries);
}

int lint(const Registries& registries, const RecipeOptions& options, bool json) {
  const TrainerConfig tree = options.recipe_tree(registries);
  TrainerConfig chosen = tree;  // resolved only to get the name of the present hardware
  chosen.mesh_rules.clear();
  const std::string hardware =
      resolve(chosen, options.hardware, registries.devices, registries.classes).hardware;
  std::vector<std::string> found =
      lint_mesh_rules(tree, registries.devices.backends(), hardware, registries.catalog, registries.classes);
  for (std::string& line : found) line = options.located(line, registries);
  for (std::string& line :
       lint_hardware_rules(tree, registries.devices, registries.catalog, registries.classes))
    found.push_back(std::move(line));
  if (json)
    fmt::print("{}\n", nlohmann::ordered_json{{"rules", tree.mesh_rules.size()}, {"found", found}}.dump(2));
  else
    for (const std::string& line : found) fmt::print("{}\n", line);
  if (found.empty() && !json) fmt::print("{} mesh rules: no problem found\n", tree.mesh_rules.size());
  return found.empty() ? 0 : 1;
}

// Every field that differs, with its value in the trees that have it.
nlohmann::ordered_json diff_json(const TrainerConfig& before, const TrainerConfig& after) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::object();
  const auto add = [&](const TrainerConfig& tree, const char* side) {
    for (const auto& [path, value] : layers::flatten(tree)) rows[path][side] = value;
  };
  add(before, "before");
  add(after, "after");
  for (auto row = rows.begin(); row != rows.end();)
    if (row->size() == 2 && (*row)["before"] == (*row)["after"])
      row = rows.erase(row);
    else
      ++row;
  return rows;
}

// Prints how `tree` differs from `before`.
void show_diff(const TrainerConfig& before, const TrainerConfig& tree, bool json) {
  if (json)
    fmt::print("{}\n", diff_json(before, tree).dump(2));
  else
    fmt::print("{}", layers::diff(before, tree));
}

int show(const Registries& registries, const RecipeOptions& options, bool diff, const std::string& against,
         bool json) {
  // Without hardware to resolve for, the recipe is printed for any machine, with its rules.
  TrainerConfig tree =
      options.names_hardware() ? options.resolved(registries) : options.recipe_tree(registries);
  if (!options.names_hardware()) options.apply_epochs(tree);
  try {
    tree.check();
  } catch (const Error& error) {
    say_note(fmt::format("train refuses this recipe: {}", error.what()));
  }
  if (!against.empty()) {
    show_diff(other_tree(registries, against), tree, json);
  } else if (diff) {
    RecipeOptions plain;
    plain.recipe = options.recipe;
    plain.config = options.config;
    plain.init = options.init;
    show_diff(plain.recipe_tree(registries), tree, json);
  } else if (json) {
    nlohmann::ordered_json fields = nlohmann::ordered_json::object();
    for (const auto& [path, value] : layers::flatten(tree)) fields[path] = value;
    fmt::print("{}\n", fields.dump(2));
  } else {
    fmt::print("{}", print_recipe(tree));
  }
  return 0;
}

}  // namespace

void add_config(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand("config", "Print a recipe as text that train --config reads back");
  auto options = std::make_shared<RecipeOptions>();
  auto diff = std::make_shared<bool>(false);
  auto against = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  auto check = std::make_shared<bool>(false);
  options->add_to(*command);
  options->add_run_to(*command);
  command->add_flag("--diff", *diff, "Print only the differences from the recipe");
  command->add_option("--against", *against, "Print the differences from this recipe, a name or a file")
      ->type_name("RECIPE");
  command->add_flag(
      "--lint", *check,
      "Check the mesh rules instead: find rules that never match or are shadowed, and modifiers that fail or "
      "change nothing. Exits with 1 when it finds one");
  command->add_flag(
      "--json", *json,
      "Print JSON: the path and value of every field, or the differences, or the results of --lint");
  command->footer(
      "Without --selector, --device or --as the recipe is printed for any machine, and mesh rules are not "
      "applied. With one\n"
      "of them, the first mesh rule whose pattern matches the hardware's full name is applied to it.\n"
      "Examples:\n  meshloom config tiny --selector cpu-as-tpu-v5e-1 --diff\n"
      "  meshloom config tiny --set model.decoder.stack.num_layers=4 --replace RMSNorm=LayerNorm > "
      "my.recipe\n"
      "  meshloom train --config my.recipe --data text.txt");
  command->callback([=, &action] {
    action = [=] {
      return *check ? lint(registries, *options, *json) : show(registries, *options, *diff, *against, *json);
    };
  });
}

}  // namespace meshloom::trainer
