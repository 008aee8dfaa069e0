#include "trainer/rules/hardware_rule.h"

#include <algorithm>
#include <tuple>

#include "embedded_hardware_rules.h"
#include "hal/error.h"
#include "layers/config/glob.h"
#include "layers/config/tree.h"
#include "trainer/rules/place.h"

namespace meshloom::trainer {
namespace {

constexpr std::string_view kEnding = ".rule";

bool matches(const HardwareRuleConfig& rule, const HardwareFacts& facts) {
  return layers::Glob(rule.profile).matches(facts.profile.name) &&
         (rule.kind.empty() || rule.kind == to_string(facts.profile.kind)) &&
         (rule.matrix.empty() || rule.matrix == facts.matrix);
}

// Larger = more specific.
auto specificity(const HardwareRuleConfig& rule) {
  return std::tuple(rule.profile != "*", !rule.matrix.empty(), !rule.kind.empty());
}

}  // namespace

void HardwareRuleConfig::fields(layers::FieldVisitor& v) {
  v("profile", profile, {"Pattern over the names of profiles: * is any text, {a,b} either."});
  v("kind", kind,
    {"The kind of the profile; \"\": any.", layers::one_of("", "host", "gpu", "tpu", "trainium")});
  v("matrix", matrix,
    {"What the matrix unit multiplies: bf16, only f16, or none, for a device without one; \"\": anything.",
     layers::one_of("", "bf16", "f16", "none")});
  v("modifiers", modifiers, {"The modifiers that edit the recipe, in order."});
}

HardwareFacts facts_of(const hal::DeviceInfo& device) {
  bool bf16 = device.has("amx-bf16"), f16 = false;
  for (const hal::MatrixShape& shape : device.limits.matrix_shapes) {
    bf16 = bf16 || shape.in == hal::DType::bf16;
    f16 = f16 || shape.in == hal::DType::f16;
  }
  return {device.profile, bf16 ? "bf16" : f16 ? "f16" : "none"};
}

HardwareFacts facts_of(const hal::Profile& profile) {
  const auto multiplies = [&](hal::DType dtype) {
    return profile.matrix_tile.m > 0 && profile.flops(dtype) > profile.flops(hal::DType::f32);
  };
  return {profile, multiplies(hal::DType::bf16) ? "bf16" : multiplies(hal::DType::f16) ? "f16" : "none"};
}

std::vector<HardwareRule> parse_hardware_rules(const std::vector<std::pair<std::string, std::string>>& files,
                                               const layers::ClassTable& classes) {
  layers::ClassTable known = classes;
  known.add<HardwareRuleConfig>();
  std::vector<HardwareRule> rules;
  for (const auto& [name, text] : files) {
    const std::unique_ptr<layers::Config> parsed = layers::parse(text, known, name);
    const auto* config = dynamic_cast<const HardwareRuleConfig*>(parsed.get());
    if (!config) throw Error(name, "must hold a HardwareRule", "a " + std::string(parsed->class_name()));
    const layers::Glob glob(config->profile);
    const std::vector<hal::Profile>& profiles = hal::shipped_profiles();
    if (std::none_of(profiles.begin(), profiles.end(),
                     [&](const hal::Profile& profile) { return glob.matches(profile.name); }))
      throw Error(located(name, layers::lines_of(text, known), "profile"),
                  "must match a profile (see meshloom profiles)", "'" + config->profile + "'");
    rules.push_back({name.ends_with(kEnding) ? name.substr(0, name.size() - kEnding.size()) : name, *config,
                     name, layers::lines_of(text, known)});
  }
  return rules;
}

std::vector<HardwareRule> shipped_hardware_rules(const layers::ClassTable& classes) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const embedded::File& file : embedded::hardware_rules()) files.emplace_back(file.name, file.text);
  return parse_hardware_rules(files, classes);
}

std::optional<HardwareRule> find_hardware_rule(const std::vector<HardwareRule>& rules,
                                               const HardwareFacts& facts) {
  const HardwareRule* best = nullptr;
  const HardwareRule* equal = nullptr;
  for (const HardwareRule& rule : rules) {
    if (!matches(rule.config, facts)) continue;
    if (!best || specificity(rule.config) > specificity(best->config)) {
      best = &rule;
      equal = nullptr;
    } else if (specificity(rule.config) == specificity(best->config)) {
      equal = &rule;
    }
  }
  if (equal)
    throw Error("hardware rules '" + best->name + "' and '" + equal->name + "'",
                "one of those that match profile '" + facts.profile.name + "' must be the most specific",
                "equally specific rules");
  if (!best) return std::nullopt;
  return *best;
}

}  // namespace meshloom::trainer
