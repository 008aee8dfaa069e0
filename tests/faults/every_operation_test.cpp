// A full disk and a disk's errors at file operations: training goes on, or ends in words with its last step
// saved.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/faults/file_tracer.h"
#include "tests/faults/small_run.h"

namespace meshloom::tests {
namespace {

class IoError : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(IoError, AtOneOperationLosesNothing) {
  if (const std::string reason = why_not_traced(); !reason.empty()) GTEST_SKIP() << reason;
  SmallRun run;
  ASSERT_EQ(run.train_whole(), "");
  const std::vector<std::string> operations =
      run_traced(run.words("counted"), run.folder("counted")).operations;
  int points = 0, went_on = 0;
  for (const int at : chosen_points(static_cast<int>(operations.size()), 10)) {
    const std::string what = std::string(GetParam().first) + " at operation " + std::to_string(at) + ", " +
                             operations[static_cast<std::size_t>(at)];
    run.clear("failed");
    const TracedRun failed =
        run_traced(run.words("failed"), run.folder("failed"), {FileFault::Kind::fail, at, GetParam().second});
    EXPECT_TRUE(failed.injected) << what;
    ++points;
    if (failed.code == 0) {
      ++went_on;
      EXPECT_EQ(run.newest_step("failed"), SmallRun::kSteps) << what << "\n" << failed.err;
    } else {
      EXPECT_EQ(failed.code, 1) << what << "\n" << failed.err;
      EXPECT_EQ(failed.errors().size(), 1u) << what << "\n" << failed.err;
      // Either nothing was trained yet, or what was is saved.
      const auto steps = losses(run.folder("failed"));
      const int trained = steps.empty() ? 0 : steps.back().first;
      EXPECT_GE(run.newest_step("failed"), trained) << what << "\n" << failed.err;
    }
    run.expect_resumed("failed", what);
    if (HasFailure()) FAIL() << what;
  }
  std::printf("%s: %d operations tried, after %d training went on\n", GetParam().first, points, went_on);
}

INSTANTIATE_TEST_SUITE_P(Of, IoError, testing::Values(std::pair("ENOSPC", ENOSPC), std::pair("EIO", EIO)),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(FullDisk, FromAnOperationOnLosesNoCheckpoint) {
  if (const std::string reason = why_not_traced(); !reason.empty()) GTEST_SKIP() << reason;
  SmallRun run;
  ASSERT_EQ(run.train_whole(), "");
  const std::vector<std::string> operations =
      run_traced(run.words("counted"), run.folder("counted")).operations;
  for (const int at : chosen_points(static_cast<int>(operations.size()), 5)) {
    const std::string what =
        "full from operation " + std::to_string(at) + ", " + operations[static_cast<std::size_t>(at)];
    run.clear("full");
    const TracedRun full =
        run_traced(run.words("full"), run.folder("full"), {FileFault::Kind::fail_from, at, ENOSPC});
    EXPECT_EQ(full.errors().size(), full.code == 0 ? 0u : 1u) << what << "\n" << full.err;
    run.expect_resumed("full", what);
    if (HasFailure()) FAIL() << what;
  }
}

}  // namespace
}  // namespace meshloom::tests
