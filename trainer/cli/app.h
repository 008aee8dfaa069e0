// The command line.
#pragma once

#include "hal/registry.h"
#include "kernels/catalog.h"

namespace meshloom::trainer {

// Runs one command. Errors are one line on stderr, "meshloom: WHERE: RULE; found FOUND". Returns the exit code:
// 0 done, 1 an error, 2 wrong usage or a plan that does not fit, 130 stopped by a signal.
int run_command_line(int argc, char** argv, const hal::Registry& registry, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
