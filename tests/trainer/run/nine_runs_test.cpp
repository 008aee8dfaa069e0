// One recipe, unchanged, on every backend under every kind of profile: the losses of 30 steps agree with
// those of the double-precision reference kernels, and each run used the kernels of its kind.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/run/short_run.h"

namespace meshloom::trainer {
namespace {

constexpr int kRunSteps = 30;

const Trained& reference_run(World& world) {
  static const Trained run = world.train("cpu-host-cpu-1", kRunSteps, {.variant = "reference"});
  return run;
}

class NineRuns : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(NineRuns, AgreeWithTheReference) {
  const auto [backend, profile] = GetParam();
  World world;
  const std::string why_none = world.why_none(backend);
  if (!why_none.empty()) GTEST_SKIP() << why_none;
  const Trained run = world.train(std::string(backend) + "-as-" + profile + "-1", kRunSteps);
  const Trained& want = reference_run(world);
  for (std::size_t step = 0; step < kRunSteps; ++step)
    EXPECT_LE(std::fabs(run.losses[step] - want.losses[step]), 1e-4 * want.losses[step]) << "step " << step;
  EXPECT_LT(run.losses.back(), 0.8 * run.losses.front());
  const std::string kind = profile;
  std::set<std::string> got;
  for (const auto& [op, variants] : run.variants)
    if (op.starts_with("flash_attention")) got.insert(variants.begin(), variants.end());
  const std::set<std::string> matmul{kind == "h100"   ? "gpu_tile"
                                     : kind == "trn2" ? "trainium_psum"
                                                      : "tpu_stationary"};
  const std::set<std::string> attention{kind == "h100"   ? "gpu_tile"
                                        : kind == "trn2" ? "trainium_partition"
                                                         : "tpu_splash"};
  EXPECT_EQ(run.variants.at("matmul"), matmul);
  EXPECT_EQ(got, attention);
}

INSTANTIATE_TEST_SUITE_P(All, NineRuns,
                         testing::Combine(testing::Values("cpu", "opencl", "vulkan"),
                                          testing::Values("h100", "tpu-v5e", "trn2")),
                         [](const auto& info) {
                           std::string name =
                               std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

// The check above would see a wrong kernel: another learning rate is another run.
TEST(NineRunsControl, ADifferentRunIsSeen) {
  World world;
  const Trained own = world.train("cpu-host-cpu-1", kRunSteps);
  double worst = 0;
  for (std::size_t step = 1; step < kRunSteps; ++step)
    worst = std::max(worst, std::fabs(own.losses[step] - own.losses[step - 1]) / own.losses[step]);
  EXPECT_GT(worst, 1e-3);
}

}  // namespace
}  // namespace meshloom::trainer
