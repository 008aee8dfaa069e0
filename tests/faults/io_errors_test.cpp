// Files that cannot be written or read while a run trains.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/faults/support.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;

const std::string kSmall =
    "train tiny --device cpu --sample 0 --set sequence=16 --set batch=2 --set eval_batches=0 "
    "--set model.decoder.stack.num_layers=1 ";

class IoErrors : public testing::Test {
 protected:
  void SetUp() override { scratch.file("text", sample_text(30000)); }
  Outcome train(const std::string& more, const std::string& faults, const std::string& log = {}) {
    return meshloom(kSmall + "--data " + scratch.path("text") + " --out " + run() + " " + more,
                    with_faults(faults, log));
  }
  std::string run() const { return scratch.path("run"); }
  std::vector<std::int64_t> steps_written() const {
    std::vector<std::int64_t> steps;
    for (const std::string& line : lines_of(run() + "/metrics.jsonl"))
      steps.push_back(nlohmann::json::parse(line)["step"].get<std::int64_t>());
    return steps;
  }
  Scratch scratch;
};

// 28 = ENOSPC, 5 = EIO.
TEST_F(IoErrors, MetricsWaitUntilTheyCanBeWritten) {
  const Outcome outcome = train("--steps 12", "write metrics.jsonl 4 5 28;write events.out 4 3 5");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("No space left"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("Input/output error"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("metrics.jsonl: succeeded again"), std::string::npos) << outcome.err;
  std::vector<std::int64_t> all(12);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i) + 1;
  EXPECT_EQ(steps_written(), all);
}

TEST_F(IoErrors, ACheckpointThatCannotBeWrittenIsTriedAgainAtTheNext) {
  for (const char* code : {"28", "5"}) {
    fs::remove_all(run());
    const Outcome outcome =
        train("--steps 8 --set checkpoint_every=2 --set keep=0",
              std::string("write .tmp-step-00000004 2 1 ") + code + ";rename step-00000006 1 1 " + code);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(trainer::checkpoint_steps(run()), (std::vector<std::int64_t>{8, 2}));
    EXPECT_NE(outcome.err.find("checkpoint of step 4"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("checkpoint of step 6"), std::string::npos) << "said once: " << outcome.err;
  }
}

TEST_F(IoErrors, TheLastCheckpointThatCannotBeWrittenIsAnError) {
  const Outcome outcome = train("--steps 4 --set checkpoint_every=2", "write .tmp-step-00000004 1 100 28");
  EXPECT_EQ(outcome.code, 1);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
  EXPECT_NE(outcome.errors()[0].find("No space left"), std::string::npos) << outcome.err;
  EXPECT_EQ(trainer::checkpoint_steps(run()), (std::vector<std::int64_t>{2}));
}

TEST_F(IoErrors, AnOldCheckpointThatCannotBeRemovedGoesLater) {
  const Outcome outcome = train("--steps 10 --set checkpoint_every=2 --set keep=2", "rename removed 1 2 5");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("removing an old checkpoint"), std::string::npos) << outcome.err;
  EXPECT_EQ(trainer::checkpoint_steps(run()), (std::vector<std::int64_t>{10, 8}));
}

TEST_F(IoErrors, DataThatCannotBeReadEndsWithACheckpoint) {
  std::string lines;
  for (int i = 0; i < 400; ++i)
    lines += "{\"text\": \"the river ran over stones number " + std::to_string(i) + "\"}\n";
  const std::string data = scratch.file("data.jsonl", lines);
  const Outcome outcome =
      meshloom(kSmall + "--set checkpoint_every=0 --set sequence=64 --steps 1000000 --data " + data +
               " --out " + run() + " & pid=$!; for i in $(seq 600); do [ -s " + run() +
               "/metrics.jsonl ] && break; sleep 0.1; done; : > " + data + "; wait $pid");
  EXPECT_EQ(outcome.code, 1);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
  EXPECT_NE(outcome.errors()[0].find("data.jsonl"), std::string::npos) << outcome.err;
  ASSERT_FALSE(steps_written().empty());
  EXPECT_EQ(trainer::checkpoint_steps(run()), (std::vector<std::int64_t>{steps_written().back()}))
      << outcome.err;
}

// The history up to a step is on the disk before its checkpoint is there.
TEST_F(IoErrors, MetricsAreSyncedBeforeACheckpoint) {
  const Outcome outcome = train("--steps 4 --set checkpoint_every=2", "", scratch.path("log"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  int metrics = 0, events = 0, checkpoints = 0;
  for (const std::string& line : lines_of(scratch.path("log"))) {
    metrics += line.starts_with("sync ") && line.ends_with("/metrics.jsonl");
    events += line.starts_with("sync ") && line.find("/events.out") != std::string::npos;
    if (line.starts_with("rename ") && line.find("/step-") != std::string::npos) {
      ++checkpoints;
      EXPECT_EQ(metrics, checkpoints) << line;
      EXPECT_EQ(events, checkpoints) << line;
    }
  }
  EXPECT_EQ(checkpoints, 2);
}

TEST_F(IoErrors, LeftoversAreRemovedAtTheStartAndAtTheEnd) {
  ASSERT_EQ(train("--steps 2", "").code, 0);
  fs::create_directories(run() + "/.tmp-step-removed-123");
  std::ofstream(run() + "/.tmp-step-removed-123/model.safetensors") << "much";
  EXPECT_EQ(train("--steps 2 --resume", "").code, 0);
  EXPECT_FALSE(fs::exists(run() + "/.tmp-step-removed-123"));
}

TEST_F(IoErrors, OneCommandLineStartsAndGoesOn) {
  const std::string command = kSmall + "--set checkpoint_every=2 --steps 4 --auto-resume --data " +
                              scratch.path("text") + " --out " + run();
  const Outcome first = meshloom(command);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("holds no checkpoint yet: the run starts"), std::string::npos) << first.err;
  fs::remove_all(run() + "/step-00000004");
  const Outcome second = meshloom(command);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.out.find("continuing after step 2"), std::string::npos) << second.out;
  const Outcome third = meshloom(command);
  EXPECT_EQ(third.code, 0) << third.err;
  EXPECT_EQ(meshloom("train tiny --device cpu --auto-resume --data " + scratch.path("text")).code, 1);
}

TEST_F(IoErrors, WithoutFlockAnOwnerFileHoldsTheDirectory) {
  const std::string no_flock = "flock - 1 1000000 37";  // ENOLCK
  EXPECT_EQ(train("--steps 2", no_flock).code, 0);
  EXPECT_FALSE(fs::exists(run() + "/.lock-owner"));
  // A process that is there, on this host and this boot: this one.
  std::ofstream(run() + "/.lock-owner") << "process 1\nstart 0\nhost elsewhere\nboot x\n";
  Outcome outcome = train("--steps 3 --resume", no_flock);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("process 1 on host elsewhere"), std::string::npos) << outcome.err;
  // One of this host whose number another process has now, or nobody.
  ASSERT_EQ(std::system(("printf 'process 1\\nstart 987654321\\nhost %s\\nboot %s\\n' \"$(hostname)\" "
                         "\"$(cat /proc/sys/kernel/random/boot_id)\" > " +
                         run() + "/.lock-owner")
                            .c_str()),
            0);
  outcome = train("--steps 3 --resume", no_flock);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  // Two at once.
  outcome = meshloom(kSmall + "--steps 1000000 --resume --data " + scratch.path("text") + " --out " + run() +
                         " & pid=$!; for i in $(seq 600); do [ -e " + run() +
                         "/.lock-owner ] && break; sleep 0.1; done; " + MESHLOOM_BINARY + " " + kSmall +
                         "--steps 9 --resume --data " + scratch.path("text") + " --out " + run() +
                         "; code=$?; kill -TERM $pid; wait $pid && code=99; exit $code",
                     "export " + with_faults(no_flock) + ";");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("one run at a time"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace meshloom::tests
