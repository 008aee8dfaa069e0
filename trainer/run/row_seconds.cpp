#include "trainer/run/row_seconds.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "trainer/compose/compose.h"
#include "trainer/execute/session.h"
#include "trainer/run/step_runner.h"

namespace meshloom::trainer {

double row_seconds(const TrainerConfig& config, const Dataset& data, hal::Device& device,
                   const kernels::Catalog& catalog, int steps) {
  TrainerConfig alone = config;
  alone.batch = alone.accumulation = 1;
  alone.eval_batches = 0;
  alone.mesh = layers::Child<MeshConfig>(MeshConfig());
  Session session(
      device, catalog,
      compose_training(*alone.model, *alone.learner, alone.compose_options(), catalog, device.info()));
  initialize(session, static_cast<std::uint64_t>(alone.seed));
  StepRunner runner(alone, session, data.train(1, static_cast<std::uint64_t>(alone.seed)), nullptr);
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    runner.step(step);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (step > 0) least = std::min(least, seconds);
  }
  return least;
}

}  // namespace meshloom::trainer
