// Runs that fit into little memory without a flag, as a user starts them: from nothing, from a checkpoint with adapters, and
// continued.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

class FitRuns : public testing::Test {
 protected:
  FitRuns() {
    ::setenv("MESHLOOM_CACHE_DIR", "", 1);  // kernels that were measured between two runs change bits
    text_ = scratch_.file("text.txt", sample_text(20000));
  }

  // The bytes that the plan of these options takes.
  std::int64_t planned(const std::string& options) {
    const Outcome outcome = meshloom("plan --json " + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out, nullptr, false)["peak_bytes"].get<std::int64_t>();
  }
  static std::string memory(double part, std::int64_t bytes) {
    return " --memory " + std::to_string(static_cast<std::int64_t>(part * static_cast<double>(bytes))) + "B";
  }
  Outcome train(const std::string& options, int steps, const std::string& out) {
    return meshloom("train --quiet --sample 0 --set eval_batches=0 --set checkpoint_every=2 " + options +
                    " --data " + text_ + " --steps " + std::to_string(steps) + " --out " +
                    scratch_.path(out));
  }
  std::string recipe(const std::string& out) { return read_text(scratch_.path(out) + "/recipe.txt"); }

  Scratch scratch_;
  std::string text_;
};

TEST_F(FitRuns, TheChoiceIsSaidWrittenAndTakenAgain) {
  const std::string options = "tiny --device cpu --set eval_batches=0";
  const std::int64_t most = planned(options);
  const std::string small = memory(0.7, most);
  const Outcome whole = train(options + small, 4, "whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("note: to fit into "));
  EXPECT_THAT(recipe("whole"), HasSubstr("fit = false"));
  EXPECT_THAT(recipe("whole"),
              testing::AnyOf(HasSubstr("policy = \"recompute\""), Not(HasSubstr("accumulation = 1\n"))));
  ASSERT_EQ(train(options + small, 2, "parts").code, 0);
  // With more memory it goes on as it began.
  const Outcome second = train(options + memory(1.5, most) + " --resume", 4, "parts");
  ASSERT_EQ(second.code, 0) << second.err;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_text(scratch_.path("whole") + "/step-00000004/" + file),
              read_text(scratch_.path("parts") + "/step-00000004/" + file))
        << file;
  // And without a limit nothing is edited.
  const Outcome plain = train(options, 1, "plain");
  EXPECT_THAT(plain.err, Not(HasSubstr("to fit into")));
}

TEST_F(FitRuns, AdaptersOverACheckpointFitWithoutAFlag) {
  ASSERT_EQ(train("tiny --device cpu", 2, "base").code, 0);
  for (const std::string bits : {"", "--modify 'Quantize{}' "})
    for (const std::string dtype : {"", "--set dtype=bf16 "}) {
      const std::string options = "--init " + scratch_.path("base") + " " + bits + dtype +
                                  "--modify 'Adapt{with=Lora{rank=4}}' --device cpu --set eval_batches=0";
      const std::int64_t most = planned(options);
      const std::string out = "tuned" + std::to_string(bits.size()) + std::to_string(dtype.size());
      const Outcome tuned = train(options + memory(0.8, most), 4, out);
      ASSERT_EQ(tuned.code, 0) << tuned.err;
      EXPECT_THAT(tuned.err, HasSubstr("note: to fit into "));
      // The checkpoint goes on, and writes text.
      EXPECT_EQ(train(options + memory(0.8, most) + " --resume", 6, out).code, 0);
      const Outcome written =
          meshloom("generate --device cpu --tokens 4 --prompt the --checkpoint " + scratch_.path(out));
      EXPECT_EQ(written.code, 0) << written.err;
    }
}

TEST_F(FitRuns, WhereNothingFitsTheLeastIsSaidAndCommandsThatDo) {
  const std::string options = "tiny --device cpu --set eval_batches=0";
  const Outcome outcome = train(options + memory(0.1, planned(options)), 1, "none");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("fits into"));
  EXPECT_THAT(outcome.err, HasSubstr("; the least is "));
  const std::size_t advice = outcome.err.find("meshloom train "),
                    error = outcome.err.find("meshloom: out of memory");
  ASSERT_NE(advice, std::string::npos) << outcome.err;
  EXPECT_LT(advice, error) << "what would help comes before what failed";
}

}  // namespace
}  // namespace meshloom::tests
