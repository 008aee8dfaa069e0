// The program. This is the only file of the trainer that includes bench/, and the only one that knows what
// was built.
#include <unistd.h>

#include <optional>

#include "hal/driver_probe.h"
#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "trainer/cli/app.h"
#ifdef MESHLOOM_HAS_BENCH
#include "bench/cli/command.h"
#endif

int main(int argc, char** argv) {
  meshloom::hal::Registry registry;
  meshloom::kernels::Catalog catalog;
  meshloom::kernels::add_contracts(catalog);
  meshloom::register_backends(registry, catalog);
  registry.when_lost(meshloom::trainer::say_note);
  if (const std::optional<int> code = meshloom::hal::answer_probe(argc, argv, registry))
    ::_exit(*code);  // without what drivers do at the end of a process
  meshloom::hal::probe_drivers(registry, {.note = meshloom::trainer::say_note});
  std::vector<meshloom::trainer::AddCommand*> more;
#ifdef MESHLOOM_HAS_BENCH
  more.push_back(meshloom::bench::add_bench);
#endif
  return meshloom::trainer::run_command_line(argc, argv, registry, catalog, more);
}
