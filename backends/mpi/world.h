// What the launcher says against what MPI says.
#pragma once

#include "backends/mpi/backend.h"

namespace meshloom::backends::mpi {

// Throws Error when MPI finds one rank (`size`) and the environment says that several were started.
void require_whole_world(const Environment& environment, int size);

}  // namespace meshloom::backends::mpi
