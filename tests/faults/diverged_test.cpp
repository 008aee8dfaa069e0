// A run that diverges keeps its good checkpoints and notes it; a resume uses the newest good one.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/faults/support.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/run/state/divergence_detector.h"

namespace meshloom::tests {
namespace {

using trainer::DivergenceDetector;

TEST(DivergenceDetector, ThreeBadStepsInARow) {
  DivergenceDetector health(100, {});
  for (int i = 0; i < 25; ++i) health.add({1.5 - 0.01 * i});  // to step 125
  EXPECT_FALSE(health.bad());
  EXPECT_EQ(health.last_good(), 125);
  EXPECT_EQ(health.last_verified(), 124);
  health.add({3.2});  // 1.36 is the lowest median
  EXPECT_FALSE(health.bad()) << health.reason();
  health.add({3.5});
  health.add({900});
  EXPECT_TRUE(health.bad());
  EXPECT_FALSE(health.diverged());
  health.add({std::numeric_limits<double>::quiet_NaN()});  // step 129; the first bad one was 127
  EXPECT_TRUE(health.diverged());
  EXPECT_EQ(health.last_good(), 125);
  EXPECT_EQ(health.last_verified(), 125);
  DivergenceDetector resumed(129, health.state());
  resumed.add({900});
  EXPECT_TRUE(resumed.diverged());
  EXPECT_EQ(resumed.last_good(), 125);
  resumed.add({1.3});
  EXPECT_FALSE(resumed.bad());
  // Steps without a token have no loss.
  DivergenceDetector sparse(0, {});
  for (int i = 0; i < 100; ++i) sparse.add_empty();
  for (int i = 0; i < 30; ++i) sparse.add({5});
  EXPECT_FALSE(sparse.bad());
  EXPECT_EQ(sparse.last_good(), 130);
}

TEST(DivergenceDetector, ASkippedStepIsBadUnlessTheScaleIsSought) {
  DivergenceDetector health(0, {});
  for (int i = 0; i < 5; ++i) health.add({1, true, 4096});
  EXPECT_FALSE(health.bad());
  for (int i = 0; i < 3; ++i) health.add({1, true, {}});
  EXPECT_TRUE(health.diverged());
}

struct BlowUp {
  const char* name;
  const char* factor;  // on the learning rate, from step `at` on
  const char* at;
  int keep;
  const char* good;  // the checkpoint that is left
};

class Diverged : public testing::TestWithParam<BlowUp> {};

TEST_P(Diverged, KeepsTheGoodCheckpoints) {
  const BlowUp& blow = GetParam();
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  const std::string run = scratch.path("run");
  const std::string train =
      "train tiny --device cpu --sample 0 --set sequence=16 --set batch=2 --set eval_batches=0 --set "
      "checkpoint_every=10 "
      "--set model.decoder.stack.num_layers=1 --set keep=" +
      std::to_string(blow.keep) + " --set 'learner.schedule=WarmupPiecewise{warmup_steps=5 boundaries=[" +
      blow.at + "] factors=[\"1\",\"" + blow.factor + "\"]}' --data " + scratch.path("text") + " --out " +
      run;
  const Outcome outcome = meshloom(train + " --steps 90");
  EXPECT_NE(outcome.err.find("the run has diverged"), std::string::npos) << outcome.err;
  const std::vector<std::int64_t> steps = trainer::checkpoint_steps(run);
  EXPECT_LE(steps.size(), static_cast<std::size_t>(blow.keep) + 1);
  std::int64_t healthy = 0;
  for (const std::int64_t step : steps)
    if (trainer::unhealthy_reason(trainer::checkpoint_path(run, step)).empty())
      healthy = std::max(healthy, step);
  EXPECT_EQ(healthy, std::stoll(blow.good));
  // It is what is taken, and said.
  const Outcome resumed = meshloom(train + " --resume --steps " + std::to_string(healthy + 1));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("the newest healthy one is of step " + std::string(blow.good)),
            std::string::npos)
      << resumed.err;
  EXPECT_NE(resumed.out.find("continuing after step " + std::string(blow.good)), std::string::npos)
      << resumed.out;
  EXPECT_EQ(meshloom("generate --device cpu --tokens 4 --prompt the --checkpoint " + run).code, 0);
}

// In the last two a checkpoint is saved right after the update that ruined the parameters, before any loss
// shows it.
INSTANTIATE_TEST_SUITE_P(All, Diverged,
                         testing::Values(BlowUp{"NotFinite", "1e30", "45", 2, "40"},
                                         BlowUp{"Finite", "3000", "45", 2, "40"},
                                         BlowUp{"FiniteAtASave", "3000", "50", 2, "40"},
                                         BlowUp{"NotFiniteKeepingOne", "1e30", "50", 1, "40"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace meshloom::tests
