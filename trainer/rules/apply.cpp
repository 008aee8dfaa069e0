#include "trainer/rules/apply.h"

#include "layers/config/tree.h"
#include "trainer/config/modifier.h"

namespace meshloom::trainer {

Applied apply_modifiers(TrainerConfig& config, const std::vector<layers::Child<ModifierConfig>>& modifiers,
                        const std::string& path, const layers::ClassTable& classes) {
  Applied applied;
  for (std::size_t i = 0; i < modifiers.size(); ++i) {
    const std::string here = path + "[" + std::to_string(i) + "]";
    if (!modifiers[i]) throw Error(here, "a modifier must be set", "none");
    if (const auto* chain = modifiers[i].as<Chain>()) {
      if (chain->modifiers.empty())
        applied.no_ops.push_back(here + " Chain: changes nothing, because it is empty");
      Applied inner = apply_modifiers(config, chain->modifiers, here + ".modifiers", classes);
      applied.changes.insert(applied.changes.end(), inner.changes.begin(), inner.changes.end());
      applied.no_ops.insert(applied.no_ops.end(), inner.no_ops.begin(), inner.no_ops.end());
      continue;
    }
    const TrainerConfig before = config;
    const std::string name = here + " " + std::string(modifiers[i]->class_name());
    try {
      modifiers[i]->apply(config, classes);
    } catch (const Error& error) {
      throw Error(name, "must apply", error.what());
    }
    const std::string changed = layers::diff(before, config);
    if (changed.empty())
      applied.no_ops.push_back(name + ": changes nothing, because the recipe already says the same");
    else
      applied.changes.push_back(changed);
  }
  return applied;
}

}  // namespace meshloom::trainer
