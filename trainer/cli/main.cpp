#include "hal/registry.h"
#include "kernels/catalog.h"
#include "trainer/cli/app.h"

int main(int argc, char** argv) {
  meshloom::hal::Registry registry;
  meshloom::kernels::Catalog catalog;
  meshloom::kernels::add_contracts(catalog);
  meshloom::register_backends(registry, catalog);
  return meshloom::trainer::run_command_line(argc, argv, registry, catalog);
}
