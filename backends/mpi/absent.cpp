// Built where MPI is not.
#include "backends/mpi/backend.h"

namespace meshloom::backends::mpi {

bool is_built() { return false; }

std::unique_ptr<hal::Transport> connect(const Environment& environment) {
  const std::optional<std::string> name = launcher(environment);
  throw Error("ranks",
              "processes reach each other through MPI, which this program must be built with (MESHLOOM_MPI)",
              name ? *name + " in the environment, and a program without MPI" : "a program without MPI");
}

}  // namespace meshloom::backends::mpi
