#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "layers/config/tree.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

int show(const Context& context, const RecipeOptions& options, bool diff, bool json) {
  // Without hardware to resolve for, the tree is the recipe, rules and all, for any machine.
  TrainerConfig tree = options.names_hardware() ? options.resolved(context) : options.recipe_tree(context);
  if (diff) {
    RecipeOptions plain;
    plain.recipe = options.recipe;
    plain.config = options.config;
    const std::string text = layers::diff(plain.recipe_tree(context), tree);
    fmt::print("{}{}", text, text.empty() || text.ends_with('\n') ? "" : "\n");
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

void add_config(CLI::App& app, const Context& context, Action& action) {
  CLI::App* command = app.add_subcommand("config", "Print a recipe as text that train --config reads back");
  auto options = std::make_shared<RecipeOptions>();
  auto diff = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  options->add_to(*command);
  command->add_flag("--diff", *diff, "Print only what differs from the recipe");
  command->add_flag("--json", *json, "Print every field's path and value as JSON");
  command->footer(
      "Without --selector, --device or --as the recipe is printed for any machine, mesh rules unapplied. With one "
      "of them\nthe first rule whose pattern matches the hardware's name in full has edited the tree.\n"
      "Examples:\n  meshloom config tiny --selector cpu-as-tpu-v5e-1 --diff\n"
      "  meshloom config tiny --set model.decoder.stack.num_layers=4 --replace RMSNorm=LayerNorm > my.recipe\n"
      "  meshloom train --config my.recipe --data text.txt");
  command->callback([=, &action] { action = [=] { return show(context, *options, *diff, *json); }; });
}

}  // namespace meshloom::trainer
