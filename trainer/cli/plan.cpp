#include "hal/error.h"
#include "trainer/cli/command.h"

namespace meshloom::trainer {

void add_plan(CLI::App&, const Context&, Action&) {}

}  // namespace meshloom::trainer
