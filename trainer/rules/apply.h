// Applies modifiers and reports what each one changed.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct Applied {
  std::vector<std::string>
      changes;  // per modifier that changed something: lines "-path: before", "+path: after"
  std::vector<std::string> no_ops;  // per modifier that changed nothing: one line
};

// Applies the modifiers in order, those of a Chain one by one. `path` says where the modifiers stand, for
// messages. Throws Error when one cannot be applied; the earlier ones stay applied.
Applied apply_modifiers(TrainerConfig& config, const std::vector<layers::Child<ModifierConfig>>& modifiers,
                        const std::string& path, const layers::ClassTable& classes);

}  // namespace meshloom::trainer
