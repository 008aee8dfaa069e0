// Applying modifiers, and saying what each did.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct Applied {
  std::vector<std::string>
      changes;  // per modifier that changed something: "-path: before", "+path: after" lines
  std::vector<std::string> idle;  // one line per modifier that changed nothing
};

// In order, chains opened up. `path` says where the modifiers stand, for messages. Throws Error where one
// cannot be applied; the tree is then as the ones before it left it.
Applied apply_modifiers(TrainerConfig& config, const std::vector<layers::Child<ModifierConfig>>& modifiers,
                        const std::string& path, const layers::ClassTable& classes);

}  // namespace meshloom::trainer
