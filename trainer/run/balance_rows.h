// Divides the rows of a micro-batch among ranks whose devices are not equally fast.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hal/device.h"
#include "hal/transport/transport.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/dataset.h"

namespace meshloom::trainer {

// Seconds of one row of the recipe on a device: the fastest of `steps` train steps of one row by itself, without other ranks,
// after one that is not counted. Takes the memory of such a run while it lasts. Throws what composing and running throw.
double row_seconds(const TrainerConfig& config, const Dataset& data, hal::Device& device,
                   const kernels::Catalog& catalog, int steps = 3);

// The most rows of a micro-batch that the memory of a rank's device has room for, with the others given one each or what is
// left: by the plans of the fewest and of the most rows, and a straight line between them. 0 = any number.
std::int64_t max_rows(const TrainerConfig& config, const hal::DeviceInfo& device,
                      const kernels::Catalog& catalog, int rank);

// Sets mesh.shares by deal_rows() (trainer/mesh/shares.h), from what every rank measures; ranks that share rows count as the
// slowest of them. Where rank 0 knows shares already, such as those of a checkpoint, all take them, and nothing is measured.
// Called by all ranks together. Returns what it set, in words. Throws Error where the rows do not fit, and hal::PeerLost.
std::string balance_rows(TrainerConfig& config, const Dataset& data, hal::Device& device,
                         const kernels::Catalog& catalog, hal::Transport& transport, double patience,
                         std::span<const std::int64_t> known = {});

}  // namespace meshloom::trainer
