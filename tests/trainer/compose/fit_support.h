// Runs an edited recipe for a few steps on a device, for the tests of Fit.
#pragma once

#include <vector>

#include "hal/device.h"
#include "tests/trainer/compose/support.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::tests {

// The training plan, whatever the memory of the device is.
trainer::Plan training_plan(const trainer::TrainerConfig& config, const hal::DeviceInfo& device);

// The losses of some steps on one batch of the recipe's rows and sequence, from the initial values of seed 1. Expects that
// exactly the planned bytes are allocated.
std::vector<double> losses_of(const trainer::TrainerConfig& config, hal::Device& device, const Batch& batch,
                              int steps);

}  // namespace meshloom::tests
