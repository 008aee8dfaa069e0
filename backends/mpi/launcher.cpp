#include <cstdlib>

#include "backends/mpi/backend.h"
#include "backends/mpi/world.h"

namespace meshloom::backends::mpi {

Environment own_environment() {
  return [](const char* name) { return std::getenv(name); };
}

namespace {

int number(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text ? std::atoi(text) : 0;
}

}  // namespace

std::optional<std::string> launcher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"})
    if (environment(name)) return name;
  // Of a step's own tasks where Slurm says it: a batch script runs once, whatever was allocated.
  const char* tasks = environment("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (number(environment, tasks) > 1 && environment("SLURM_PROCID"))
    throw Error(
        "ranks",
        "Slurm's tasks reach each other through PMIx: start them with srun --mpi=pmix, or with mpirun in an "
        "allocation; ranks as threads need --ranks",
        std::string("lone copies under srun: ") + tasks + "=" + environment(tasks) + " and no PMIX_RANK");
  if (number(environment, "PMI_SIZE") > 1)
    throw Error("ranks", "the launcher must be that of Open MPI, mpirun, or srun --mpi=pmix",
                std::string("another MPI's: PMI_SIZE=") + environment("PMI_SIZE") + " and no PMIX_RANK");
  return std::nullopt;
}

void require_whole_world(const Environment& environment, int size) {
  if (size > 1) return;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE"})
    if (number(environment, name) > 1 &&
        !(std::string(name) == "SLURM_NTASKS" && environment("SLURM_STEP_NUM_TASKS")))
      throw Error("ranks",
                  "MPI must find the ranks that the launcher started, so both must be of the same MPI",
                  std::string(name) + "=" + environment(name) + ", and a job of one rank");
}

}  // namespace meshloom::backends::mpi
