// The ranks of a job as processes that an MPI launcher started. MPI carries messages between two ranks and nothing
// else: what all ranks do together is made of such messages (kernels/collective).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hal/transport/transport.h"

namespace meshloom::backends::mpi {

// The value of an environment variable; nullptr = not set.
using Environment = std::function<const char*(const char*)>;
Environment own_environment();

// What says that this process is one of several: "OMPI_COMM_WORLD_SIZE" of mpirun, or "PMIX_RANK" of srun --mpi=pmix.
// Nothing when the process was started alone. Throws Error when it is one of several that cannot reach each other:
// under srun without PMIx, or another MPI's mpiexec.
std::optional<std::string> launcher(const Environment& environment);

// Whether the backend was built. Without it connect() throws an Error that says so.
bool is_built();

// Initialises MPI, once in a process and only where launcher() names one, and finds the other ranks. The destructor
// ends MPI, or, during an exception, the job. Throws Error: the backend was not built, no launcher, MPI in use already,
// or a job of one rank where the launcher started several.
//
// abort() writes the reason as one line to stderr and ends all processes with exit code 1. A process that dies ends the
// job by its launcher. One thread at a time may use the transport.
std::unique_ptr<hal::Transport> connect(const Environment& environment);

}  // namespace meshloom::backends::mpi
