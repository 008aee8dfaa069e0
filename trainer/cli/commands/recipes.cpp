#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "layers/models/trace.h"
#include "trainer/cli/command.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

std::int64_t parameter_count(const TrainerConfig& config, const kernels::Catalog& catalog) {
  std::int64_t count = 0;
  for (const auto& parameter : layers::trace_logits(*config.model, catalog, 1, 1).parameters)
    count += parameter.type.elements();
  return count;
}

int list_recipes(const Registries& registries, bool json) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (!json) fmt::print("{:<16} {:>10} {:>8} {:>8}  {}\n", "recipe", "parameters", "batch", "sequence", "");
  for (const Recipe& recipe : recipes()) {
    const TrainerConfig config = recipe.make();
    const std::int64_t parameters = parameter_count(config, registries.catalog);
    if (json)
      rows.push_back({{"name", recipe.name},
                      {"about", recipe.about},
                      {"parameters", parameters},
                      {"batch", config.batch},
                      {"sequence", config.sequence},
                      {"steps", config.steps},
                      {"vocabulary", layers::vocabulary(*config.model)}});
    else
      fmt::print("{:<16} {:>10} {:>8} {:>8}  {}\n", recipe.name, count_text(static_cast<double>(parameters)),
                 config.batch, config.sequence, recipe.about);
  }
  if (json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

}  // namespace

void add_recipes(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand("recipes", "List the shipped recipes");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print a JSON list");
  command->footer("Example:\n  meshloom recipes\n  meshloom config tiny   # prints one of them");
  command->callback([=, &action] { action = [=] { return list_recipes(registries, *json); }; });
}

}  // namespace meshloom::trainer
