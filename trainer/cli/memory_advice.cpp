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
#include "trainer/rules/fit.h"

namespace meshloom::trainer {
namespace {

void edit(TrainerConfig& tree, const std::string& option, const std::string& value,
          const Registries& registries) {
  const std::size_t equals = value.find('=');
  if (option == "--modify") {
    Chain chain;
    layers::set(chain, "modifiers", "[" + value + "]", registries.classes);
    apply_modifiers(tree, chain.modifiers, option, registries.classes);
  } else if (option == "--replace") {
    layers::replace(tree, value.substr(0, equals), value.substr(equals + 1), registries.classes);
  } else {
    layers::set(tree, value.substr(0, equals), value.substr(equals + 1), registries.classes);
  }
}

// The training plan of the edited recipe; nothing when the edit cannot be applied, changes nothing or does
// not compose.
std::optional<Plan> plan_with(const MemorySuggestion& suggestion, const TrainerConfig& config,
                              const Registries& registries, const hal::DeviceInfo& device,
                              const ComposeRun& compose) {
  try {
    TrainerConfig tree = config;
    for (const auto& [option, value] : suggestion.options) edit(tree, option, value, registries);
    if (!suggestion.options.empty() && layers::diff(config, tree).empty()) return std::nullopt;
    tree.check();
    if (tree.fit) fit(tree, device, registries.catalog, registries.classes, {.compose = compose});
    ComposeOptions options = tree.compose_options();
    options.enforce_memory = options.verify_passes = false;
    if (compose) return compose(tree, options, device);
    return compose_training(*tree.model, *tree.learner, options, registries.catalog, device);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// An edit that changes what is trained or how, so that a user has to ask for it. Another one is another line.
struct Remedy {
  const char* about;
  std::vector<std::pair<std::string, std::string>> options;
  bool helps = true;  // with this recipe
};

// In the order in which they are shown: first those that save most.
std::vector<MemorySuggestion> candidates(const TrainerConfig& config, const hal::DeviceInfo& device,
                                         bool all_trainable) {
  const std::pair<std::string, std::string> adapt{"--modify", "Adapt{with=Lora{rank=8}}"},
      quantize{"--modify", "Quantize{}"};
  const std::string learner(config.learner->class_name());
  const bool fits_itself = config.fit;  // these are among the edits of rules/fit.h
  const std::vector<Remedy> remedies{
      {"only adapters are trained", {adapt}, all_trainable},
      {"only adapters are trained, over 4-bit weights", {quantize, adapt}, all_trainable},
      {"4-bit weights", {quantize}, !all_trainable},
      {"moments of the optimizer in eight bits", {{"--replace", "AdamW=AdamW8bit{}"}}, learner == "AdamW"},
      {"an optimizer with less state", {{"--replace", learner + "=Adafactor{}"}}, learner != "Adafactor"},
      {"parameters in 16 bits, rounded stochastically",
       {{"--set", "param_dtype=bf16"}},
       all_trainable && config.param_dtype == "f32" && !config.offload_optimizer},
      {"the optimizer on the host",
       {{"--set", "offload_optimizer=true"}},
       !fits_itself && !config.offload_optimizer && device.host != nullptr},
      {"activations are recomputed in the backward pass",
       {{"--set", "remat=[RematRule{policy=recompute}]"}},
       !fits_itself && config.remat.empty()},
      {"a loss in chunks, which never holds all scores",
       {{"--replace", "CrossEntropy=ChunkedLoss{chunk_size=512}"}},
       !fits_itself && print_recipe(config).find("ChunkedLoss") == std::string::npos},
      {"16-bit activations", {{"--set", "dtype=bf16"}}, config.dtype == "f32"},
      {"micro-batches of one row",
       {{"--set", "accumulation=" + std::to_string(config.batch)}},
       !fits_itself && config.batch > config.accumulation},
      {"half the sequence",
       {{"--set", "sequence=" + std::to_string(config.sequence / 2)}},
       config.sequence > 1}};
  std::vector<MemorySuggestion> list;
  for (const Remedy& remedy : remedies)
    if (remedy.helps) list.push_back({remedy.about, remedy.options, 0, false});
  return list;
}

}  // namespace

std::string MemorySuggestion::shell_arguments() const {
  std::string text;
  for (const auto& [option, value] : options) text += " " + option + " " + shell_word(value);
  return text;
}

std::string MemorySuggestion::text() const {
  return about + ", " + bytes_text(static_cast<double>(peak_bytes)) + (fits ? ", fits" : "");
}

std::vector<MemorySuggestion> suggest_less_memory(const Registries& registries, const TrainerConfig& config,
                                                  const hal::DeviceInfo& device, const ComposeRun& compose) {
  const std::int64_t limit = memory_limit(device);
  const std::optional<Plan> plain = plan_with({}, config, registries, device, compose);
  const std::int64_t before = plain ? plain->peak_bytes : std::numeric_limits<std::int64_t>::max();
  const bool all_trainable = !plain || plain->trainable_parameter_count() == plain->parameter_count();
  std::vector<MemorySuggestion> found;
  const auto measure = [&](MemorySuggestion& suggestion) {
    const std::optional<Plan> plan = plan_with(suggestion, config, registries, device, compose);
    if (!plan || plan->peak_bytes >= before) return false;
    suggestion.peak_bytes = plan->peak_bytes;
    suggestion.fits = limit <= 0 || plan->peak_bytes <= limit;
    return true;
  };
  for (MemorySuggestion& suggestion : candidates(config, device, all_trainable))
    if (measure(suggestion)) found.push_back(std::move(suggestion));
  std::stable_partition(found.begin(), found.end(),
                        [](const MemorySuggestion& suggestion) { return suggestion.fits; });
  if (!found.empty() && found.front().fits) return found;
  // Combine the one that saves most with each of the others that still helps.
  std::vector<MemorySuggestion> by_size = found;
  std::stable_sort(by_size.begin(), by_size.end(), [](const MemorySuggestion& a, const MemorySuggestion& b) {
    return a.peak_bytes < b.peak_bytes;
  });
  MemorySuggestion together;
  for (const MemorySuggestion& next : by_size) {
    MemorySuggestion longer = together;
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
