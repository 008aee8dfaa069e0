// The subcommands of `meshloom bench`, one file each.
#pragma once

#include "trainer/cli/command.h"

namespace meshloom::bench {

void add_train_step(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_tune(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);

}  // namespace meshloom::bench
