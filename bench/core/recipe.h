// The calls that a recipe really makes.
#pragma once

#include <string>
#include <vector>

#include "bench/core/workload.h"
#include "trainer/compose/plan.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

// The programs of one step, in order, and how often each is submitted.
struct StepProgram {
  std::string name;
  std::int64_t times = 1;
};
std::vector<StepProgram> step_programs(const trainer::TrainerConfig& config);

// The training plan of a resolved recipe, without holding it to the device's memory.
trainer::Plan plan_of(const trainer::TrainerConfig& config, const kernels::Catalog& catalog,
                      const hal::DeviceInfo& device);

// Its distinct calls with the variants the plan gives them, those of most FLOPs and bytes first. Views, which
// run no kernel, are left out.
std::vector<Workload> recipe_workloads(const trainer::TrainerConfig& config, const trainer::Plan& plan,
                                       const kernels::Catalog& catalog);

}  // namespace meshloom::bench
