// The same plans on every device found here, under the checked device.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

using trainer::ComposeOptions;

class OnDevice : public ::testing::TestWithParam<std::string> {
 protected:
  struct Result {
    std::vector<float> metrics;
    std::map<std::string, std::vector<float>> weights;
  };

  // Three updates and an evaluation; the memory taken must be the memory planned.
  static Result train(const ComposeOptions& options) {
    Bench bench(GetParam());
    trainer::Plan plan =
        trainer::compose_training(tiny_llama(), adamw(), options, catalog(), bench.device->info());
    const std::int64_t planned = plan.peak_bytes;
    bench.start(std::move(plan));
    EXPECT_EQ(bench.device->allocated_bytes(), planned);
    Result result;
    for (int step = 0; step < 3; ++step) {
      bench.set_rate(1e-2f);
      bench.feed(random_batch(options.rows(), options.sequence, 19, 50 + static_cast<std::uint64_t>(step)));
      if (options.accumulation == 1) {
        bench.session->run(trainer::Step::train);
      } else {
        for (std::int64_t part = 0; part < options.accumulation; ++part)
          bench.session->run(trainer::Step::accumulate);
        bench.session->run(trainer::Step::apply);
      }
      for (float value : bench.read("metrics")) result.metrics.push_back(value);
    }
    bench.session->run(trainer::Step::evaluate);
    for (float value : bench.read("eval/metrics")) result.metrics.push_back(value);
    for (const layers::ParameterInfo& info : bench.session->plan().parameters)
      result.weights[info.path] = bench.read(info.path);
    EXPECT_EQ(bench.device->peak_bytes(), planned);
    return result;
  }
};

TEST_P(OnDevice, PlannedMemoryAndEqualBitsUnderRematerialisation) {
  ComposeOptions options = small_options();
  const Result first = train(options), second = train(options);
  EXPECT_EQ(first.metrics, second.metrics);
  EXPECT_EQ(first.weights, second.weights);
  options.remat = {{".*", trainer::RematPolicy::recompute}};
  const Result again = train(options);
  EXPECT_EQ(first.metrics, again.metrics);
  EXPECT_EQ(first.weights, again.weights);
}

TEST_P(OnDevice, AccumulationRuns) {
  ComposeOptions options = small_options();
  options.accumulation = 2;
  const Result first = train(options), second = train(options);
  EXPECT_EQ(first.weights, second.weights);
  for (float value : first.metrics) EXPECT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Found, OnDevice, ::testing::ValuesIn(computing_devices()),
                         [](const auto& info) { return plain_name(info.param); });

}  // namespace
}  // namespace meshloom::tests
