// Text that is generated while a run goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

class SampleEvery : public testing::Test {
 protected:
  Outcome train(const std::string& out, const std::string& more) const {
    return meshloom("train tiny --device cpu --data " + data_ + " --out " + scratch_.path(out) + " " + more);
  }
  // The bytes of a file of the last checkpoint.
  std::string saved(const std::string& out, const std::string& step, const std::string& file) const {
    return read_text(scratch_.path(out) + "/step-" + step + "/" + file);
  }

  Scratch scratch_;
  const std::string data_ = scratch_.file("text", sample_text(20000));
};

TEST_F(SampleEvery, ShowsTextAndChangesNoBit) {
  const Outcome with = train("with", "--steps 300 --sample-every 0.05"),
                without = train("without", "--steps 300");
  ASSERT_EQ(with.code, 0) << with.err;
  ASSERT_EQ(without.code, 0) << without.err;
  EXPECT_THAT(with.out, HasSubstr(", sample (prompt | continuation):\n"));
  EXPECT_EQ(without.out.find(", sample (prompt"), std::string::npos);
  EXPECT_THAT(without.out, HasSubstr("\nsample (prompt | continuation):\n"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_FALSE(saved("with", "00000300", file).empty());
    EXPECT_TRUE(saved("with", "00000300", file) == saved("without", "00000300", file)) << file;
  }
}

// Whether the signal comes in a step or in a sample, the run saves and ends as runs do.
TEST_F(SampleEvery, ASignalSaves) {
  const std::string command =
      "train tiny --device cpu --steps 100000 --set eval_every=0 --sample-every 0.001 --data " + data_ +
      " --out " + scratch_.path("run");
  const Outcome outcome = meshloom(command, "timeout --preserve-status -s INT 2");
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(", sample (prompt | continuation):\n"));
  EXPECT_EQ(meshloom("checkpoint " + scratch_.path("run")).code, 0);
}

TEST_F(SampleEvery, RefusesWhatIsNoTime) {
  for (const char* bad : {"-1", "soon"})
    EXPECT_EQ(train("run", std::string("--sample-every ") + bad).code, 2);
}

}  // namespace
}  // namespace meshloom::tests
