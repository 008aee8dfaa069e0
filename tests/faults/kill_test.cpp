// SIGKILL at file operations and at random moments: no bit of the run is lost.
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "tests/faults/file_tracer.h"
#include "tests/faults/small_run.h"

namespace meshloom::tests {
namespace {

TEST(Killed, AtAFileOperation) {
  if (const std::string reason = why_not_traced(); !reason.empty()) GTEST_SKIP() << reason;
  SmallRun run;
  ASSERT_EQ(run.train_whole(), "");
  const TracedRun counted = run_traced(run.words("counted"), run.folder("counted"));
  ASSERT_EQ(counted.code, 0) << counted.err;
  run.expect_same("counted", "only counted");
  const int count = static_cast<int>(counted.operations.size());
  ASSERT_GT(count, 50) << "three checkpoints take more operations";

  using Kind = FileFault::Kind;
  int points = 0;
  for (const int at : chosen_points(count, 10)) {
    std::vector<Kind> kinds{Kind::kill_before, Kind::kill_after, Kind::kill_torn};
    if (!all_faults()) kinds = {kinds[static_cast<std::size_t>(points % 3)]};
    for (const Kind kind : kinds) {
      const std::string what = "killed at operation " + std::to_string(at) + ", " +
                               counted.operations[static_cast<std::size_t>(at)] + ", kind " +
                               std::to_string(static_cast<int>(kind));
      run.clear("killed");
      const TracedRun killed = run_traced(run.words("killed"), run.folder("killed"), {kind, at});
      EXPECT_TRUE(killed.injected) << what;
      EXPECT_EQ(killed.code, 128 + SIGKILL) << what;
      run.expect_resumed("killed", what);
      ++points;
      if (HasFailure()) FAIL() << what;
    }
  }
  std::printf("%d operations; %d kills, each resumed to the same bits\n", count, points);
}

class KilledAtRandom : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(KilledAtRandom, GoesOnToTheSameBits) {
  const auto& [device, all] = GetParam();
  SmallRun run(device);
  if (const std::string reason = run.train_whole(); !reason.empty()) GTEST_SKIP() << reason;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> moment(0.3 * run.seconds(), run.seconds());
  int kills = 0;
  for (int attempt = 0; kills < (all_faults() ? all : 2) && attempt < 1000; ++attempt) {
    run.clear("killed");
    char after[64];
    std::snprintf(after, sizeof after, "sleep %.4f", moment(random));
    // Waits for the process itself: while it ends, it still holds the directory.
    const Outcome killed =
        meshloom(run.arguments("killed") + " & pid=$!; " + after + "; kill -KILL $pid; wait $pid");
    if (killed.code == 0) continue;  // was done before
    ++kills;
    run.expect_resumed("killed", std::string(device) + ": killed after " + after);
    if (HasFailure()) FAIL();
  }
  EXPECT_GT(kills, 0);
  std::printf("%s: %d kills, each resumed to the same bits\n", device, kills);
}

INSTANTIATE_TEST_SUITE_P(On, KilledAtRandom,
                         testing::Values(std::pair("cpu", 120), std::pair("opencl", 50),
                                         std::pair("vulkan", 50)),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace meshloom::tests
