// A device whose work never ends: it is noticed within the limit, what hangs is named, and the run goes on; a signal is answered
// meanwhile.
#include <gtest/gtest.h>

#include "tests/faults/small_run.h"
#include "tests/faults/support.h"

namespace meshloom::tests {
namespace {

struct Hang {
  const char *device, *fault;
};

class Hangs : public testing::TestWithParam<Hang> {};

TEST_P(Hangs, AreNoticedAndNamed) {
#ifdef MESHLOOM_SANITIZED
  GTEST_SKIP() << "a sanitizer's library must be the first that is loaded";
#endif
  SmallRun run(GetParam().device);
  if (const std::string reason = run.train_whole(); !reason.empty()) GTEST_SKIP() << reason;
  const Outcome outcome =
      meshloom(run.arguments("hung"), with_faults(GetParam().fault) + " MESHLOOM_WAIT_SECONDS=1");
  EXPECT_NE(outcome.err.find("must finish what is submitted to it; it was waited for"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("of list 'train'"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("decoder/"), std::string::npos) << "names no call: " << outcome.err;
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  run.expect_same("hung", outcome.err);
}

// The device is waited for without end.
TEST_P(Hangs, DoNotKeepASignalWaiting) {
#ifdef MESHLOOM_SANITIZED
  GTEST_SKIP() << "a sanitizer's library must be the first that is loaded";
#endif
  SmallRun run(GetParam().device);
  if (const std::string reason = run.train_whole(); !reason.empty()) GTEST_SKIP() << reason;
  const Outcome outcome =
      meshloom(run.arguments("hung") + " & pid=$!; for i in $(seq 300); do [ -s " + run.folder("hung") +
                   "/recipe.txt ] && break; sleep 0.1; done; sleep 2; kill -TERM $pid; wait $pid",
               with_faults(GetParam().fault) + " MESHLOOM_WAIT_SECONDS=0");
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_NE(outcome.err.find("the device had not finished its work"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("by SIGTERM"), std::string::npos) << outcome.out;
  run.expect_resumed("hung", outcome.out);
}

INSTANTIATE_TEST_SUITE_P(Of, Hangs,
                         testing::Values(Hang{"vulkan", "vkQueueSubmit - 5 1 1"},
                                         Hang{"opencl", "clEnqueueNDRangeKernel - 77 1 2"}),
                         [](const auto& info) { return std::string(info.param.device); });

}  // namespace
}  // namespace meshloom::tests
