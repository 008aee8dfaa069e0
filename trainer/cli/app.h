// The command line.
#pragma once

#include <vector>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "trainer/cli/command.h"

namespace meshloom::trainer {

// Runs one command. Errors are printed as one line on stderr, "meshloom: WHERE: RULE; found FOUND". Returns
// the exit code: 0 done, 1 an error, 2 wrong usage or a plan that does not fit, 130 stopped by a signal.
// `more` are further commands, from rooms that the trainer does not include.
int run_command_line(int argc, char** argv, const hal::Registry& registry, const kernels::Catalog& catalog,
                     const std::vector<AddCommand*>& more = {});

}  // namespace meshloom::trainer
