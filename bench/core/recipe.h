// The calls of a recipe's train step.
#pragma once

#include <string>
#include <vector>

#include "bench/measure/workload.h"
#include "trainer/compose/plan.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

// The training plan of a resolved recipe, even if it exceeds the device's memory.
trainer::Plan plan_of(const trainer::TrainerConfig& config, const kernels::Catalog& catalog,
                      const hal::DeviceInfo& device);
// The same for steps that run. Throws OutOfMemory, which says what takes the memory.
trainer::Plan plan_to_run(const trainer::TrainerConfig& config, const kernels::Catalog& catalog,
                          const hal::DeviceInfo& device);

// Its distinct calls with their variants in the plan, those with the most FLOPs and bytes first; without
// views, which run no kernel.
std::vector<Workload> recipe_workloads(const trainer::Plan& plan, const kernels::Catalog& catalog);

}  // namespace meshloom::bench
