// Lists that are cut into many submissions, or not at all, give the same bits.
#include <gtest/gtest.h>

#include "tests/faults/small_run.h"
#include "tests/faults/support.h"

namespace meshloom::tests {
namespace {

class Cut : public testing::TestWithParam<const char*> {};

TEST_P(Cut, ListsGiveTheSameBits) {
  SmallRun run(GetParam());
  if (const std::string reason = run.train_whole(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string milliseconds : {"0", "0.02"}) {
    run.clear("cut");
    const Outcome outcome = meshloom(run.arguments("cut"), "MESHLOOM_SUBMISSION_MS=" + milliseconds);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    run.expect_same("cut", "cut by " + milliseconds + " ms");
  }
  const Outcome wrong = meshloom(run.arguments("wrong"), "MESHLOOM_SUBMISSION_MS=fast");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("MESHLOOM_SUBMISSION_MS"), std::string::npos) << wrong.err;
}

INSTANTIATE_TEST_SUITE_P(Of, Cut, testing::Values("vulkan", "opencl"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace meshloom::tests
