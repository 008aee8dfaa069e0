// Signals that ask a run to end.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/faults/support.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
namespace {

class Signals : public testing::Test {
 protected:
  // Runs until the metrics have a line, then the shell's `then`, which sees the process as $pid and ends by
  // waiting for it.
  Outcome run(const std::string& then, const std::string& options = {}, const std::string& before = {}) {
    scratch.file("text", sample_text(30000));
    return meshloom(
        "train tiny --device cpu --sample 0 --set checkpoint_every=0 --set eval_batches=0 --steps 100000 "
        "--data " +
            scratch.path("text") + " --out " + scratch.path("run") + " " + options +
            " & pid=$!; for i in $(seq 600); do [ -s " + scratch.path("run") +
            "/metrics.jsonl ] && break; sleep 0.1; done; " + then,
        before);
  }
  std::int64_t last_step() const {
    const auto lines = lines_of(scratch.path("run/metrics.jsonl"));
    return lines.empty() ? 0 : nlohmann::json::parse(lines.back())["step"].get<std::int64_t>();
  }
  Scratch scratch;
};

TEST_F(Signals, SaveAndSayWhich) {
  for (const char* name : {"HUP", "USR1", "USR2", "XCPU", "ALRM"}) {
    std::filesystem::remove_all(scratch.path("run"));
    const Outcome outcome = run(std::string("kill -") + name + " $pid; wait $pid");
    EXPECT_EQ(outcome.code, 130) << name << outcome.err;
    EXPECT_NE(outcome.out.find(std::string("by SIG") + name), std::string::npos) << outcome.out;
    EXPECT_TRUE(std::filesystem::exists(trainer::checkpoint_path(scratch.path("run"), last_step()) +
                                        "/manifest.json"))
        << name;
  }
}

// A closing terminal sends HUP twice, a scheduler a warning and then TERM: all of it is one request.
TEST_F(Signals, RepeatedRequestsAreOne) {
  const Outcome outcome =
      run("kill -HUP $pid; kill -HUP $pid; kill -USR1 $pid; kill -TERM $pid; kill -TERM $pid; wait $pid",
          "--set batch=64");
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_TRUE(
      std::filesystem::exists(trainer::checkpoint_path(scratch.path("run"), last_step()) + "/manifest.json"));
}

// The process stands still in the middle of a step until half a second has passed.
TEST_F(Signals, ASecondTermEndsAtOnce) {
  const Outcome outcome = run(
      "kill -TERM $pid; sleep 0.05; kill -STOP $pid; sleep 0.7; kill -TERM $pid; kill -CONT $pid; wait $pid",
      "--set batch=512");
  EXPECT_EQ(outcome.code, 143) << outcome.err;
}

TEST_F(Signals, IgnoredOnesStayIgnored) {
  const Outcome outcome = run(
      "kill -HUP $pid; sleep 0.5; kill -0 $pid || exit 99; kill -TERM $pid; wait $pid", {}, "trap '' HUP;");
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_NE(outcome.out.find("by SIGTERM"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace meshloom::tests
