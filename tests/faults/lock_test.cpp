// A directory's lock that is taken away while a run holds it.
#include "trainer/run/state/directory_lock.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/faults/support.h"

namespace meshloom::trainer {
namespace {

TEST(DirectoryLock, IsTakenAgainWhereSomeoneRemovedIt) {
  const tests::Scratch scratch;
  DirectoryLock lock(scratch.path());
  EXPECT_THROW(DirectoryLock{scratch.path()}, Error);
  std::filesystem::remove(scratch.path(".lock"));
  lock.check();
  EXPECT_THROW(DirectoryLock{scratch.path()}, Error);
}

TEST(DirectoryLock, IsLostWhereAnotherRunTookIt) {
  const tests::Scratch scratch;
  DirectoryLock lock(scratch.path());
  std::filesystem::remove(scratch.path(".lock"));
  const DirectoryLock other(scratch.path());
  EXPECT_THROW(lock.check(), LockLost);
}

// The run ends at its next save, and writes nothing more.
TEST(DirectoryLock, ARunStopsWhenItIsLost) {
  const tests::Scratch scratch;
  scratch.file("text", tests::sample_text(30000));
  const std::string train = "train tiny --device cpu --sample 0 --set eval_batches=0 --auto-resume --data " +
                            scratch.path("text") + " --out " + scratch.path("run");
  const tests::Outcome outcome = tests::meshloom(
      train + " --set checkpoint_every=1000000 --steps 1000000 & pid=$!; for i in $(seq 600); do [ -s " +
      scratch.path("run/metrics.jsonl") + " ] && break; sleep 0.1; done; rm " + scratch.path("run/.lock") +
      "; flock " + scratch.path("run/.lock") + " -c \"kill -TERM $pid; while kill -0 $pid 2>/dev/null && " +
      "[ \\$(ps -o stat= -p $pid | cut -c1) != Z ]; do sleep 0.1; done\"; wait $pid");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("the run's lock was taken away while it ran"), std::string::npos) << outcome.err;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("run")))
    EXPECT_FALSE(entry.path().filename().string().starts_with("step-")) << entry.path();
}

}  // namespace
}  // namespace meshloom::trainer
