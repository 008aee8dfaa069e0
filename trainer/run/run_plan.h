// The plan of a run: its steps, and beside them what writes samples while it trains.
#pragma once

#include <cstdint>
#include <string>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/compose.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct SampleOptions {
  std::int64_t tokens = 200;  // length of the text that is generated at the end; 0 = none
  // Seconds after which such a text is shown while the run trains, again and again; 0 = at the end only. The programs that write it
  // are part of the run's plan then.
  double every = 0;

  bool while_training() const { return tokens > 0 && every > 0; }
};

// Composes what `meshloom train` runs. `options` are those of the config, also with a rank, measured kernels or no limit of memory.
// Samples are written by a Generator of TextSample::sequence() tokens and sources as long as those of the options, on the parameters
// of the run: beside caches, or where the model has none (layers::NoCache) by the whole prefix for every token; then a note of the
// plan says why. Where the input has prompts, the engine's programs that answer them are part of the plan (trainer/rollout). Throws what
// compose_training() throws.
Plan compose_run(const TrainerConfig& config, ComposeOptions options, const SampleOptions& sample,
                 const kernels::Catalog& catalog, const hal::DeviceInfo& device, PassTrace* trace = nullptr);

}  // namespace meshloom::trainer
