#include "tests/trainer/compose/fit_support.h"

#include <gtest/gtest.h>

#include <span>

#include "trainer/execute/session.h"

namespace meshloom::tests {

trainer::Plan training_plan(const trainer::TrainerConfig& config, const hal::DeviceInfo& device) {
  trainer::ComposeOptions options = config.compose_options();
  options.enforce_memory = false;
  return compose_training(*config.model, *config.learner, options, catalog(), device);
}

std::vector<double> losses_of(const trainer::TrainerConfig& config, hal::Device& device, const Batch& batch,
                              int steps) {
  trainer::Session session(device, catalog(), training_plan(config, device.info()));
  EXPECT_EQ(device.allocated_bytes(), session.plan().peak_bytes) << device.info().id;
  EXPECT_EQ(device.allocated_bytes(hal::MemoryKind::host) +
                (device.host() && !session.plan().host.empty() ? device.host()->allocated_bytes() : 0),
            session.plan().host.peak_bytes)
      << device.info().id;
  initialize(session, 1);
  const float rate = 1e-3f;
  session.write("lr", std::as_bytes(std::span(&rate, 1)));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const trainer::UpdateStep part = session.plan().steps.update.front();
    const std::int64_t ids = config.batch * config.sequence / part.times;
    for (std::int64_t i = 0; i < part.times; ++i) {
      const auto rows = [&](const std::vector<std::int32_t>& all) {
        return std::as_bytes(
            std::span(all).subspan(static_cast<std::size_t>(i * ids), static_cast<std::size_t>(ids)));
      };
      session.write("tokens", rows(batch.tokens));
      session.write("targets", rows(batch.targets));
      session.run(part.step);
    }
    for (std::size_t i = 1; i < session.plan().steps.update.size(); ++i)
      session.run(session.plan().steps.update[i].step);
    std::vector<float> metrics(
        static_cast<std::size_t>(session.plan().persistent_types.at("metrics").elements()));
    session.read("metrics", std::as_writable_bytes(std::span(metrics)));
    losses.push_back(metrics[0] / metrics[1]);
  }
  EXPECT_EQ(device.peak_bytes(), session.plan().peak_bytes) << device.info().id;
  return losses;
}

}  // namespace meshloom::tests
