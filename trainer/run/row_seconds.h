// How fast a rank's device is, measured before a run.
#pragma once

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/dataset.h"

namespace meshloom::trainer {

// Seconds of one row of the recipe on a device: the fastest of `steps` train steps of one row by itself, without other ranks,
// after one that is not counted. Takes the memory of such a run while it lasts. Throws what composing and running throw.
double row_seconds(const TrainerConfig& config, const Dataset& data, hal::Device& device,
                   const kernels::Catalog& catalog, int steps = 3);

}  // namespace meshloom::trainer
