// What `meshloom plan --serve` prints.
#pragma once

#include "trainer/cli/command.h"
#include "trainer/inference/engine.h"

namespace meshloom::trainer {

// The memory of an engine of these options and its kernels, without running it. `config` is resolved for the device. Returns the
// exit code: 2 where the plan does not fit. Throws layers::NoCache for a model that cannot be served.
int plan_serving(const TrainerConfig& config, const EngineOptions& options, const Registries& registries,
                 const hal::DeviceInfo& device, bool json);

}  // namespace meshloom::trainer
