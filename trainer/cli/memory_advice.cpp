#include "trainer/cli/memory_advice.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/report.h"
#include "trainer/config/modifier.h"
#include "trainer/io/shell_word.h"
#include "trainer/rules/apply.h"

namespace meshloom::trainer {
namespace {

void edit(TrainerConfig& tree, const std::string& option, const std::string& value, const Context& context) {
  const std::size_t equals = value.find('=');
  if (option == "--modify") {
    Chain chain;
    layers::set(chain, "modifiers", "[" + value + "]", context.classes);
    apply_modifiers(tree, chain.modifiers, option, context.classes);
  } else if (option == "--replace") {
    layers::replace(tree, value.substr(0, equals), value.substr(equals + 1), context.classes);
  } else {
    layers::set(tree, value.substr(0, equals), value.substr(equals + 1), context.classes);
  }
}

// The training plan of the tree with the options; nothing where they cannot be applied, change nothing or do
// not compose.
std::optional<Plan> plan_with(const Remedy& remedy, const TrainerConfig& config, const Context& context,
                              const hal::DeviceInfo& device) {
  try {
    TrainerConfig tree = config;
    for (const auto& [option, value] : remedy.options) edit(tree, option, value, context);
    if (!remedy.options.empty() && layers::diff(config, tree).empty()) return std::nullopt;
    tree.check();
    ComposeOptions options = tree.compose_options();
    options.enforce_memory = false;
    return compose_training(*tree.model, *tree.learner, options, context.catalog, device);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<Remedy> candidates(const TrainerConfig& config, bool all_learn) {
  const std::pair<std::string, std::string> adapt{"--modify", "Adapt{with=Lora{rank=8}}"},
      quantize{"--modify", "Quantize{}"};
  std::vector<Remedy> list;
  const auto add = [&](std::string about, std::vector<std::pair<std::string, std::string>> options) {
    list.push_back({std::move(about), std::move(options), 0, false});
  };
  if (all_learn) {
    add("nothing but adapters learns", {adapt});
    add("adapters learn, over weights of four bits", {quantize, adapt});
  } else {
    add("weights of four bits", {quantize});
  }
  const std::string learner(config.learner->class_name());
  if (learner != "Adafactor") add("an optimizer with less state", {{"--replace", learner + "=Adafactor{}"}});
  if (config.remat.empty())
    add("activations are computed again in the backward pass", {{"--set", "remat=[RematRule{save=false}]"}});
  if (print_recipe(config).find("ChunkedLoss") == std::string::npos)
    add("a loss in chunks, which never holds all scores",
        {{"--replace", "CrossEntropy=ChunkedLoss{chunk_size=512}"}});
  if (config.dtype == "f32") add("activations of 16 bits", {{"--set", "dtype=bf16"}});
  if (config.batch > config.accumulation)
    add("micro-batches of one row", {{"--set", "accumulation=" + std::to_string(config.batch)}});
  if (config.sequence > 1)
    add("half the sequence", {{"--set", "sequence=" + std::to_string(config.sequence / 2)}});
  return list;
}

}  // namespace

std::string Remedy::words() const {
  std::string text;
  for (const auto& [option, value] : options) text += " " + option + " " + shell_word(value);
  return text;
}

std::string Remedy::text() const {
  return about + ", " + bytes_text(static_cast<double>(peak_bytes)) + (fits ? ", fits" : "");
}

std::vector<Remedy> remedies(const Context& context, const TrainerConfig& config,
                             const hal::DeviceInfo& device) {
  const std::int64_t limit = memory_limit(device);
  const std::optional<Plan> plain = plan_with({}, config, context, device);
  const std::int64_t before = plain ? plain->peak_bytes : std::numeric_limits<std::int64_t>::max();
  const bool all_learn = !plain || plain->trainable_parameter_count() == plain->parameter_count();
  std::vector<Remedy> found;
  const auto measure = [&](Remedy& remedy) {
    const std::optional<Plan> plan = plan_with(remedy, config, context, device);
    if (!plan || plan->peak_bytes >= before) return false;
    remedy.peak_bytes = plan->peak_bytes;
    remedy.fits = limit <= 0 || plan->peak_bytes <= limit;
    return true;
  };
  for (Remedy& remedy : candidates(config, all_learn))
    if (measure(remedy)) found.push_back(std::move(remedy));
  std::stable_sort(found.begin(), found.end(),
                   [](const Remedy& a, const Remedy& b) { return a.peak_bytes < b.peak_bytes; });
  if (std::any_of(found.begin(), found.end(), [](const Remedy& remedy) { return remedy.fits; })) return found;
  // The best, and one after the other what still helps beside it.
  Remedy together;
  for (const Remedy& next : found) {
    Remedy longer = together;
    for (const auto& option : next.options)
      if (std::find(longer.options.begin(), longer.options.end(), option) == longer.options.end())
        longer.options.push_back(option);
    if (longer.options.size() == together.options.size() || !measure(longer)) continue;
    if (together.peak_bytes > 0 && longer.peak_bytes >= together.peak_bytes) continue;
    longer.about = together.about.empty() ? next.about : together.about + "; " + next.about;
    together = std::move(longer);
    if (together.fits) break;
  }
  if (together.fits) found.insert(found.begin(), std::move(together));
  return found;
}

}  // namespace meshloom::trainer
