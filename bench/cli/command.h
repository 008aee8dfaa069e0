// `meshloom bench`.
#pragma once

#include "trainer/cli/command.h"

namespace meshloom::bench {

void add_bench(CLI::App& app, const trainer::Registries& registries, trainer::Action& action);

// Its subcommands.
void add_train_step(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_calibrate(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_decode(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_serve(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_collectives(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_estimate(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_mesh(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_plans(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_predict(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);
void add_tune(CLI::App& bench, const trainer::Registries& registries, trainer::Action& action);

}  // namespace meshloom::bench
