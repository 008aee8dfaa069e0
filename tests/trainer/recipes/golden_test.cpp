// Every shipped recipe as text: its config, how each parameter starts, decays and is updated, and the kernels
// it gets on every profile and backend, with the reasons of those it does not get, and what the program's rules make of it there.
// MESHLOOM_UPDATE_GOLDEN=1 writes the
// texts anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include "hal/error.h"
#include "hal/registry.h"
#include "tests/golden_text.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/report.h"
#include "trainer/compose/rule_pattern.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/fit.h"
#include "trainer/rules/resolve.h"

namespace meshloom::tests {
namespace {

using trainer::Plan;

struct Build {
  hal::Registry registry;
  kernels::Catalog catalog;
  layers::ClassTable classes = trainer::recipe_classes();
  Build() {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
  }
};

const Build& build() {
  static const Build all;
  return all;
}

// Of the recipe as it is, without the program's rules.
Plan plan_on(trainer::TrainerConfig config, const std::string& device_id, const std::string& profile) {
  config.hardware_rules = false;
  resolve(config, {.device = device_id, .as = profile}, build().registry, build().classes);
  const auto device = open_device(config, build().registry);
  trainer::ComposeOptions options = config.compose_options();
  options.enforce_memory = false;
  return compose_training(*config.model, *config.learner, options, build().catalog, device->info());
}

// "decoder/stack/layer12/norm" -> "decoder/stack/layerN/norm", the number into `layer`.
std::string without_layer(const std::string& path, int& layer) {
  static const std::regex kLayer("/layer([0-9]+)/");
  std::smatch match;
  if (!std::regex_search(path, match, kLayer)) return path;
  layer = std::stoi(match[1]);
  return std::string(match.prefix()) + "/layerN/" + std::string(match.suffix());
}

// A line per parameter; layers that say the same share theirs. Of the initial values the first of the first
// layer.
std::string parameters_of(const Plan& plan, std::uint64_t seed) {
  struct Line {
    std::string text, values;
    std::vector<int> layers;
  };
  std::vector<Line> lines;
  for (const layers::ParameterInfo& p : plan.parameters) {
    int layer = -1;
    std::string slots;
    for (const auto& [name, type] : plan.persistent_types)
      if (name.starts_with("optimizer/") && name.ends_with("/" + p.path))
        slots += " " + name.substr(10, name.size() - p.path.size() - 11) + " " + to_string(type);
    const std::string text = fmt::format(
        "{}: {} decay {} learning_rate {}{}, optimizer:{}", without_layer(p.path, layer), to_string(p.type),
        p.decay, p.learning_rate, p.frozen ? " frozen" : "", slots.empty() ? " none" : slots);
    const auto same =
        std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.text == text; });
    if (same != lines.end()) {
      same->layers.push_back(layer);
      continue;
    }
    std::array<float, 3> values{};
    const auto count = std::min<std::int64_t>(p.type.elements(), static_cast<std::int64_t>(values.size()));
    p.initialize_range(seed, 0, count, values.data());
    std::string starts;
    for (std::int64_t i = 0; i < count; ++i)
      starts += fmt::format(" {:.6g}", values[static_cast<std::size_t>(i)]);
    lines.push_back({text, starts, {layer}});
  }
  std::string text;
  for (const Line& line : lines) {
    text += line.text;
    if (line.layers.front() >= 0) {
      EXPECT_EQ(line.layers.back() - line.layers.front() + 1, static_cast<int>(line.layers.size()))
          << "layers in a row: " << line.text;
      text += fmt::format("; layers {} to {}", line.layers.front(), line.layers.back());
    }
    text += "; starts" + line.values + "\n";
  }
  return text;
}

std::string kernels_of(const Plan& plan) {
  std::map<std::string, std::map<std::string, int>> chosen;
  for (const auto& [name, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls)
      if (call.choice && call.choice->variant && !call.choice->variant->contract->view)
        ++chosen[call.op][call.choice->variant->name +
                          (call.choice->params.count(kernels::kF32Fallback) ? " on f32 copies" : "")];
  std::string text;
  for (const auto& [op, variants] : chosen) {
    text += "  " + op + ":";
    for (const auto& [variant, calls] : variants) text += fmt::format(" {} ({})", variant, calls);
    text += "\n";
    std::set<std::string> refused;
    for (const trainer::Refusal& refusal : plan.refusals)
      if (refusal.op == op) refused.insert("    not " + refusal.variant + ": " + refusal.reason + "\n");
    for (const std::string& line : refused) text += line;
  }
  return text;
}

class Recipes : public testing::TestWithParam<std::string> {
 protected:
  // What was measured on this machine is not of the recipes.
  void SetUp() override { ::setenv("MESHLOOM_CACHE_DIR", "", 1); }
};

TEST_P(Recipes, AreAsTheyWere) {
  trainer::TrainerConfig config = trainer::find_recipe(GetParam()).make();
  const Plan plan = plan_on(config, "null:vulkan", "h100");
  expect_golden(
      "trainer/recipes/golden/" + GetParam() + ".txt",
      print_recipe(config) + "\nParameters\n" + parameters_of(plan, static_cast<std::uint64_t>(config.seed)));
}

TEST_P(Recipes, HaveNoDeprecatedPatterns) {
  const trainer::TrainerConfig config = trainer::find_recipe(GetParam()).make();
  for (const auto& rule : config.remat) EXPECT_FALSE(trainer::is_regex(rule->tag)) << rule->tag;
  for (const auto& rule : config.kernels) {
    EXPECT_FALSE(trainer::is_regex(rule->op)) << rule->op;
    EXPECT_FALSE(trainer::is_regex(rule->path)) << rule->path;
  }
}

TEST_P(Recipes, GetTheirKernelsOnEveryProfile) {
#if !defined(MESHLOOM_HAS_VULKAN) || !defined(MESHLOOM_HAS_OPENCL)
  GTEST_SKIP() << "which kernels there are depends on the backends that were built";
#endif
  // Profiles that get the same share a paragraph.
  std::vector<std::pair<std::string, std::string>> paragraphs;
  for (const auto& [backend, dtype] : {std::pair<std::string, std::string>{"vulkan", "f32"},
                                       {"vulkan", "bf16"},
                                       {"opencl", "f32"},
                                       {"opencl", "bf16"}})
    for (const hal::Profile& profile : hal::shipped_profiles()) {
      trainer::TrainerConfig config = trainer::find_recipe(GetParam()).make();
      config.dtype = dtype;
      std::string text;
      try {
        text = kernels_of(plan_on(config, "null:" + backend, profile.name));
      } catch (const Error& error) {
        text = std::string("  cannot be planned: ") + error.what() + "\n";
      }
      const std::string name = backend + " " + profile.name + " " + dtype;
      // A reason may name the profile.
      const std::string common =
          std::regex_replace(text, std::regex("\\b" + profile.name + "\\b"), "PROFILE");
      const auto same = std::find_if(paragraphs.begin(), paragraphs.end(),
                                     [&](const auto& paragraph) { return paragraph.second == common; });
      if (same == paragraphs.end())
        paragraphs.emplace_back(name, common);
      else
        same->first += ", " + name;
    }
  std::string all;
  for (const auto& [names, text] : paragraphs) all += names + "\n" + text + "\n";
  expect_golden("trainer/recipes/golden/" + GetParam() + ".kernels.txt", all);
}

TEST_P(Recipes, AreEditedForEveryProfile) {
  std::string all;
  for (const hal::Profile& profile : hal::shipped_profiles()) {
    trainer::TrainerConfig config = trainer::find_recipe(GetParam()).make();
    const trainer::Resolution resolution =
        resolve(config, {.device = "null", .as = profile.name}, build().registry, build().classes);
    const auto device = open_device(config, build().registry);
    hal::DeviceInfo info = device->info();
    if (info.host) {  // the processor has none beside it
      auto host = std::make_shared<hal::DeviceInfo>(*info.host);
      host->limits.memory_bytes = host->profile.memory_bytes = std::int64_t{64} << 30;  // on every machine
      info.host = host;
    }
    const std::string said = fit(config, info, build().catalog, build().classes);
    trainer::ComposeOptions options = config.compose_options();
    options.enforce_memory = false;
    const Plan plan = compose_training(*config.model, *config.learner, options, build().catalog, info);
    all += fmt::format("{}: rule {}, {}, {} bytes of {}\n", profile.name, resolution.hardware_rule,
                       config.dtype, plan.peak_bytes, trainer::memory_limit(info));
    if (!said.empty()) all += "  " + said + "\n";
  }
  expect_golden("trainer/recipes/golden/" + GetParam() + ".rules.txt", all);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const trainer::Recipe& recipe : trainer::recipes())
    if (!recipe.for_mesh) all.push_back(recipe.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shipped, Recipes, testing::ValuesIn(names()), [](const auto& info) {
  return std::regex_replace(info.param, std::regex("[^A-Za-z0-9]"), "_");
});

}  // namespace
}  // namespace meshloom::tests
