#include <algorithm>
#include <functional>
#include <set>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/config/tree.h"
#include "trainer/compose/regex.h"
#include "trainer/compose/rule_pattern.h"
#include "trainer/compose/tuning/tuning.h"
#include "trainer/config/former_names.h"
#include "trainer/config/modifier.h"
#include "trainer/rules/apply.h"
#include "trainer/rules/hardware_rule.h"
#include "trainer/rules/place.h"
#include "trainer/rules/resolve.h"
#include "trainer/rules/selector.h"

namespace meshloom::trainer {
namespace {

// Hardware names that can occur, of every backend and profile and some numbers of devices. A pattern that
// matches none of them can never match.
std::vector<std::string> possible_names(const std::vector<std::string>& backends,
                                        const std::string& hardware) {
  std::vector<std::string> names{hardware};
  for (const std::string& backend : backends) {
    std::vector<std::string> profiles{"host-" + backend, "gpu-" + backend};
    for (const hal::Profile& profile : hal::shipped_profiles()) profiles.push_back(profile.name);
    for (const std::string& profile : profiles)
      for (bool as : {false, true})
        for (std::int64_t devices : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 32768})
          names.push_back(to_string(Selector{backend, as, profile, devices}));
  }
  return names;
}

// Calls each(path, op, variant) for every SetKernel among the modifiers.
void visit_kernels(
    const std::vector<layers::Child<ModifierConfig>>& modifiers, const std::string& path,
    const std::function<void(const std::string&, const std::string&, const std::string&)>& each) {
  for (std::size_t i = 0; i < modifiers.size(); ++i) {
    const std::string here = path + "[" + std::to_string(i) + "]";
    if (const auto* chain = modifiers[i].as<Chain>())
      visit_kernels(chain->modifiers, here + ".modifiers", each);
    if (const auto* kernel = modifiers[i].as<SetKernel>(); kernel && kernel->variant.has_value())
      each(here + " SetKernel", kernel->op, kernel->variant);
  }
}

// Why `meshloom train` would refuse the recipe; "" = it would not.
std::string refusal(const TrainerConfig& config) {
  try {
    config.check();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::string place_of_profile(const std::vector<layers::Child<ModifierConfig>>& modifiers,
                             const std::string& path, const std::string& profile) {
  for (std::size_t i = 0; i < modifiers.size(); ++i)
    if (const auto* set = modifiers[i].as<SetProfile>();
        set && set->profile.has_value() && set->profile.get() == profile)
      return path + "[" + std::to_string(i) + "] SetProfile";
  return path;
}

std::string unknown_variant(const std::string& op, const std::string& variant,
                            const std::vector<std::string>& backends, const kernels::Catalog& catalog) {
  if (variant == kTunedVariant || variant == kMeasuredVariant) return {};
  Matcher matches(current_op_pattern(op), "the op of a kernel rule");
  std::set<std::string> known;
  for (const kernels::Contract* contract : catalog.contracts()) {
    if (contract->view || !matches(contract->name)) continue;
    for (const std::string& backend : backends)
      for (const kernels::Variant* found : catalog.variants(contract->name, backend))
        known.insert(found->name);
  }
  if (known.count(variant)) return {};
  if (known.empty()) return "op '" + op + "' must match an op of the catalog";
  const std::vector<std::string> names(known.begin(), known.end());
  return "the variant must be one of " + hal::join(names) + hal::suggestion(variant, names) + "; found '" +
         variant + "'";
}

std::vector<std::string> unknown_variants(const std::vector<layers::Child<ModifierConfig>>& modifiers,
                                          const std::string& path, const std::vector<std::string>& backends,
                                          const kernels::Catalog& catalog) {
  std::vector<std::string> notes;
  visit_kernels(modifiers, path,
                [&](const std::string& where, const std::string& op, const std::string& variant) {
                  if (const std::string why = unknown_variant(op, variant, backends, catalog); !why.empty())
                    notes.push_back(where + ": " + why);
                });
  return notes;
}

std::vector<std::string> check_mesh_rules(const TrainerConfig& config,
                                          const std::vector<std::string>& backends,
                                          const std::string& hardware) {
  std::vector<std::string> notes;
  if (config.mesh_rules.empty()) return notes;
  std::vector<std::string> open = possible_names(backends, hardware);  // not matched by any earlier rule
  const std::vector<std::string> all = open;
  for (std::size_t i = 0; i < config.mesh_rules.size(); ++i) {
    const std::string& pattern = config.mesh_rules[i]->pattern.get();
    const std::string rule = "mesh_rules[" + std::to_string(i) + "], pattern '" + pattern + "'";
    const Regex regex(pattern, "mesh_rules[" + std::to_string(i) + "].pattern");
    const auto matches = [&](const std::string& name) { return regex.matches(name); };
    if (std::none_of(all.begin(), all.end(), matches)) {
      notes.push_back(rule + ": can never match: no hardware has such a name (BACKEND-PROFILE-N)");
      continue;
    }
    const std::size_t before = open.size();
    std::erase_if(open, matches);
    if (open.size() == before)
      notes.push_back(rule + ": can never match: an earlier rule always matches first");
    if (config.mesh_rules[i]->modifiers.empty())
      notes.push_back(rule + ": has no modifiers and changes nothing");
  }
  return notes;
}

std::vector<std::string> lint_mesh_rules(const TrainerConfig& config,
                                         const std::vector<std::string>& backends,
                                         const std::string& hardware, const kernels::Catalog& catalog,
                                         const layers::ClassTable& classes) {
  std::vector<std::string> notes = check_mesh_rules(config, backends, hardware);
  const std::string refused = refusal(config);
  for (std::size_t i = 0; i < config.kernels.size(); ++i)
    if (const std::string why =
            unknown_variant(config.kernels[i]->op, config.kernels[i]->variant, backends, catalog);
        !why.empty())
      notes.push_back("kernels[" + std::to_string(i) + "]: " + why);
  for (std::size_t i = 0; i < config.mesh_rules.size(); ++i) {
    const MeshRuleConfig& rule = *config.mesh_rules[i];
    const std::string path = "mesh_rules[" + std::to_string(i) + "].modifiers";
    TrainerConfig edited = config;
    try {
      const Applied applied = apply_modifiers(edited, rule.modifiers, path, classes);
      notes.insert(notes.end(), applied.no_ops.begin(), applied.no_ops.end());
    } catch (const Error& error) {
      notes.push_back(error.what());
      continue;
    }
    if (const std::string why = refusal(edited); why != refused)
      notes.push_back(path + ": train refuses the recipe that they make: " + why);
    if (!edited.profile.empty() && edited.profile != config.profile) try {
        hal::find_profile(edited.profile);
      } catch (const Error& error) {
        notes.push_back(place_of_profile(rule.modifiers, path, edited.profile) + ": " + error.what());
      }
    for (std::string& text : unknown_variants(rule.modifiers, path, backends, catalog))
      notes.push_back(std::move(text));
    // If the recipe comes out the same without a modifier, a later one undoes or repeats its change.
    for (std::size_t left_out = 0; left_out < rule.modifiers.size() && rule.modifiers.size() > 1;
         ++left_out) {
      std::vector<layers::Child<ModifierConfig>> others = rule.modifiers;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
      TrainerConfig without = config, alone = config;
      try {
        if (apply_modifiers(alone, {rule.modifiers[left_out]}, path, classes).changes.empty()) continue;
        apply_modifiers(without, others, path, classes);
      } catch (const Error&) {
        continue;  // a later one needs it
      }
      if (layers::diff(edited, without).empty())
        notes.push_back(path + "[" + std::to_string(left_out) + "] " +
                        std::string(rule.modifiers[left_out]->class_name()) +
                        ": the rule's other modifiers make the same recipe without it");
    }
  }
  return notes;
}

std::vector<std::string> lint_hardware_rules(const TrainerConfig& config, const hal::Registry& registry,
                                             const kernels::Catalog& catalog,
                                             const layers::ClassTable& classes) {
  return lint_hardware_rules(shipped_hardware_rules(classes), config, registry.backends(), catalog, classes);
}

std::vector<std::string> lint_hardware_rules(const std::vector<HardwareRule>& rules,
                                             const TrainerConfig& config,
                                             const std::vector<std::string>& backends,
                                             const kernels::Catalog& catalog,
                                             const layers::ClassTable& classes) {
  const std::string refused = refusal(config);
  std::vector<std::string> notes;
  for (const HardwareRule& rule : rules) {
    const auto note = [&](const std::string& text) { notes.push_back(located(rule.file, rule.lines, text)); };
    TrainerConfig edited = config;
    try {
      apply_modifiers(edited, rule.config.modifiers, "modifiers", classes);
    } catch (const Error& error) {
      note(error.what());
      continue;
    }
    if (const std::string why = refusal(edited); why != refused)
      note("modifiers: train refuses the recipe that they make: " + why);
    for (const std::string& text : unknown_variants(rule.config.modifiers, "modifiers", backends, catalog))
      note(text);
  }
  return notes;
}

}  // namespace meshloom::trainer
