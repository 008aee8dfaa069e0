// Edits a recipe so that its run fits into the memory of a device: smaller micro-batches, values that are computed again in
// the backward pass (Chen et al., 2016), a loss in chunks, and the optimizer on the host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

// Composes a run, which may hold further programs, such as those that write samples; empty = compose_training().
using ComposeRun = std::function<Plan(const TrainerConfig& config, const ComposeOptions& options,
                                      const hal::DeviceInfo& device)>;

struct FitOptions {
  ComposeRun compose = {};
  // The recipe that the run was started with, when it is continued: its choice is taken again.
  const TrainerConfig* started = nullptr;
  std::vector<std::string> fixed;  // paths of fields that the user set, which stay
};

// For a resolved recipe with `fit` set. Composes a plan for each edit, which needs no hardware, and applies the one with
// the least predicted time (Plan::update_predicted_seconds) among those that fit; the recipe stays as it is where that
// fits. Where nothing fits, the one with the smallest peak is applied. What the recipe chooses itself is kept: its
// remat rules, chunks of its loss, and at least its accumulation. Clears `fit`. Returns a line that says what was chosen and
// why; "" where the recipe stays as it is. The same recipe, device and memory give the same choice. Throws Error where the recipe
// itself cannot be composed.
std::string fit(TrainerConfig& config, const hal::DeviceInfo& device, const kernels::Catalog& catalog,
                const layers::ClassTable& classes, const FitOptions& options = {});

// For a recipe without `fit`: where the scores of the loss are a tensor that is larger than what the device allocates at once,
// cuts the loss into chunks, which changes no result but by rounding. Returns a line that says so; "" where nothing is cut.
std::string cut_scores(TrainerConfig& config, const hal::DeviceInfo& device, const kernels::Catalog& catalog,
                       const layers::ClassTable& classes);

}  // namespace meshloom::trainer
