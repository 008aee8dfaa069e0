// The same seed gives the same bits, run after run and after a resume.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

// Few launches and little arithmetic: what is tested is the same.
const std::string kSmall = "--set sequence=16 --set batch=2 --set model.decoder.stack.num_layers=1 ";

class Resume : public testing::TestWithParam<const char*> {
 protected:
  // Some backends may be absent: their one-line error skips the test.
  bool train(const std::string& run, const std::string& more) {
    const Outcome outcome = meshloom(
        std::string("train tiny --sample 0 --set checkpoint_every=50 --set eval_every=25 " + kSmall) +
        "--set eval_batches=1 --device " + GetParam() + " --data " + scratch.path("text") + " --out " +
        scratch.path(run) + " " + more);
    error = outcome.err;
    return outcome.code == 0;
  }
  Scratch scratch;
  std::string error;
};

TEST_P(Resume, GivesTheSameBits) {
  scratch.file("text", sample_text(30000));
  if (!train("whole", "--steps 100")) {
    if (error.find("needs a device") != std::string::npos) GTEST_SKIP() << error;
    FAIL() << error;
  }
  ASSERT_TRUE(train("again", "--steps 100")) << error;
  ASSERT_TRUE(train("halves", "--steps 50")) << error;
  ASSERT_TRUE(train("halves", "--steps 100 --resume")) << error;
  const auto whole = losses(scratch.path("whole"));
  ASSERT_EQ(whole.size(), 100u);
  EXPECT_LT(whole.back().second, whole.front().second);
  for (const char* other : {"again", "halves"}) {
    EXPECT_EQ(losses(scratch.path(other)), whole) << other;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(read_text(scratch.path(other) + "/step-00000100/" + file),
                read_text(scratch.path("whole/step-00000100/") + file))
          << other << " " << file;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Resume, testing::Values("cpu", "opencl", "vulkan"),
                         [](const auto& info) { return std::string(info.param); });

// Dispatches that share launches, as on GPUs, change no bit.
TEST(Run, StepsOfFewerLaunchesHaveTheSameBits) {
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  for (const char* fused : {"0", "1"}) {
    const Outcome outcome =
        meshloom("train tiny --device opencl --sample 0 --steps 4 " + kSmall + "--data " +
                     scratch.path("text") + " --out " + scratch.path(fused),
                 std::string("export MESHLOOM_OPENCL_OPTIONS=-cl-opt-disable MESHLOOM_HORIZONTAL_FUSION=") +
                     fused + ";");
    if (outcome.err.find("needs a device") != std::string::npos ||
        outcome.err.find("must be one of") != std::string::npos)
      GTEST_SKIP() << outcome.err;
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_EQ(losses(scratch.path("1")), losses(scratch.path("0")));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_text(scratch.path("1/step-00000004/") + file),
              read_text(scratch.path("0/step-00000004/") + file))
        << file;
}

// The data's order is a function of the step: a stop in the middle of an epoch and one in the next change
// nothing.
TEST(Run, ResumesInTheMiddleOfAnEpochAndAcrossItsEnd) {
  const Scratch scratch;
  scratch.file("text", sample_text(1500));
  std::string pairs;
  for (int i = 0; i < 24; ++i)
    pairs += R"({"prompt": "stone )" + std::to_string(i) + R"(", "completion": "grey river )" +
             std::to_string(i * 7) + "\"}\n";
  scratch.file("pairs.jsonl", pairs);
  // Epochs of 20 windows, and of some ten packed rows: two rows a step.
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"windows", "tiny --data " + scratch.path("text") + " --set sequence=64"},
      {"documents",
       "tiny --data " + scratch.path("text") + R"( --set sequence=64 --set 'input.separator=".\n"')"},
      {"examples", "tiny --data " + scratch.path("pairs.jsonl") + " --set sequence=64"},
      {"pairs", "tiny-pairs --data " + scratch.path("pairs.jsonl") + " --set sequence=32"}};
  for (const auto& [kind, options] : kinds) {
    const auto train = [&](const std::string& out, const std::string& more) {
      const Outcome outcome =
          meshloom("train " + options +
                   " --device cpu --sample 0 --set batch=2 --set eval_batches=0 --set checkpoint_every=0 "
                   "--out " +
                   scratch.path(kind + out) + more);
      EXPECT_EQ(outcome.code, 0) << kind << outcome.err;
    };
    train("whole", " --steps 24");
    for (const char* steps : {" --steps 3", " --steps 13 --resume", " --steps 24 --resume"})
      train("parts", steps);
    EXPECT_EQ(losses(scratch.path(kind + "parts")), losses(scratch.path(kind + "whole"))) << kind;
    EXPECT_EQ(read_text(scratch.path(kind + "parts/step-00000024/model.safetensors")),
              read_text(scratch.path(kind + "whole/step-00000024/model.safetensors")))
        << kind;
  }
}

// What the bits depend on is compared; --allow-rounding goes on all the same.
TEST(Run, ResumesOnAnotherBackendOnlyWhenAllowed) {
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  const auto train = [&](const std::string& out, const std::string& more) {
    return meshloom("train tiny --sample 0 --set checkpoint_every=0 --set eval_batches=0 " + kSmall +
                    "--data " + scratch.path("text") + " --out " + scratch.path(out) + " " + more);
  };
  ASSERT_EQ(train("whole", "--device cpu --steps 12").code, 0);
  ASSERT_EQ(train("moved", "--device cpu --steps 4").code, 0);
  int moved = 0;
  for (const char* backend : {"opencl", "vulkan"}) {
    const std::string go_on =
        std::string("--resume --device ") + backend + " --steps " + std::to_string(8 + 4 * moved);
    const Outcome refused = train("moved", go_on);
    if (refused.err.find("needs a device") != std::string::npos ||
        refused.err.find("must be one of") != std::string::npos)
      continue;
    EXPECT_EQ(refused.code, 1);
    EXPECT_NE(refused.err.find("--allow-rounding"), std::string::npos) << refused.err;
    for (const char* what : {"hardware: ", "driver: ", "kernels: "})
      EXPECT_NE(refused.err.find(what), std::string::npos) << refused.err;
    const Outcome allowed = train("moved", go_on + " --allow-rounding");
    EXPECT_EQ(allowed.code, 0) << allowed.err;
    EXPECT_NE(allowed.err.find("resumes with another driver: "), std::string::npos) << allowed.err;
    ++moved;
  }
  if (moved == 0) GTEST_SKIP() << "no second backend";
  const auto whole = losses(scratch.path("whole")), parts = losses(scratch.path("moved"));
  for (std::size_t i = 0; i < parts.size(); ++i)
    EXPECT_NEAR(parts[i].second, whole[i].second, 1e-4 * whole[i].second) << i;
}

// How often and on how much a run is evaluated may change at a resume.
TEST(Run, ResumesWithoutEvaluationAndWithItAgain) {
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  int steps = 0;
  for (const char* batches : {"1", "0", "2"}) {
    const Outcome outcome = meshloom("train tiny --device cpu --sample 0 --auto-resume " + kSmall +
                                     "--set eval_batches=" + batches + " --steps " + std::to_string(++steps) +
                                     " --data " + scratch.path("text") + " --out " + scratch.path("run"));
    EXPECT_EQ(outcome.code, 0) << batches << outcome.err;
  }
  EXPECT_EQ(losses(scratch.path("run")).size(), 3u);
}

TEST(Run, AccumulationChangesNothingButRounding) {
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  for (const char* parts : {"1", "4"}) {
    const Outcome outcome =
        meshloom("train tiny --device cpu --sample 0 --steps 10 --set eval_batches=0 --set accumulation=" +
                 std::string(parts) + " --data " + scratch.path("text") + " --out " + scratch.path(parts));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  const auto one = losses(scratch.path("1")), four = losses(scratch.path("4"));
  ASSERT_EQ(one.size(), four.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(one[i].second, four[i].second, 1e-4 * one[i].second);
}

TEST(Run, CtrlCSavesAndSaysHowToGoOn) {
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  const std::string arguments =
      "train tiny --device cpu --sample 0 --set checkpoint_every=0 --steps 100000 --data " +
      scratch.path("text") + " --out " + scratch.path("run");
  // TERM after the first step: a shell takes INT from its background jobs.
  const Outcome outcome =
      meshloom(arguments + " & pid=$!; for i in $(seq 600); do [ -s " + scratch.path("run") +
               "/metrics.jsonl ] && break; sleep 0.1; done; kill -TERM $pid; wait $pid");
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_NE(outcome.out.find("--resume"), std::string::npos) << outcome.out;
  const auto steps = losses(scratch.path("run"));
  ASSERT_FALSE(steps.empty());
  char name[64];
  std::snprintf(name, sizeof name, "run/step-%08d/manifest.json", steps.back().first);
  EXPECT_TRUE(std::filesystem::exists(scratch.path(name))) << name;
}

TEST(Run, GeneratesTheSameTextTwice) {
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  ASSERT_EQ(meshloom("train tiny --device cpu --steps 5 --data " + scratch.path("text") + " --out " +
                     scratch.path("run"))
                .code,
            0);
  const std::string generate =
      "generate --tokens 20 --prompt 'the river' --checkpoint " + scratch.path("run");
  const Outcome one = meshloom(generate), two = meshloom(generate),
                greedy = meshloom(generate + " --temperature 0");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, two.out);
  EXPECT_TRUE(one.out.starts_with("the river"));
  EXPECT_EQ(greedy.code, 0) << greedy.err;
}

}  // namespace
}  // namespace meshloom::tests
