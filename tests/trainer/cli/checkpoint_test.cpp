#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

class CheckpointCommand : public testing::Test {
 protected:
  CheckpointCommand() {
    const std::string data = scratch_.file("text", sample_text(4000));
    const Outcome outcome = meshloom("train tiny --device cpu --data " + data + " --out " + run_ +
                                     " --steps 4 --set checkpoint_every=2 --sample 0 --quiet");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }

  Scratch scratch_;
  const std::string run_ = scratch_.path("run"), newest_ = run_ + "/step-00000004",
                    older_ = run_ + "/step-00000002";
};

TEST_F(CheckpointCommand, ShowsEachCheckpointNewestFirst) {
  const Outcome outcome = meshloom("checkpoint " + run_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(newest_ + ": step 4, every checksum is right\n"));
  EXPECT_LT(outcome.out.find(newest_), outcome.out.find(older_));
  EXPECT_THAT(meshloom("checkpoint " + older_ + " --tensors").out,
              HasSubstr("F32    [256,64]         decoder/embedding/weight\n"));
  const auto json = nlohmann::json::parse(meshloom("checkpoint " + run_ + " --json").out);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["step"], 2);
  EXPECT_EQ(json[0]["model"][0]["name"], "decoder/embedding/weight");
  EXPECT_GT(json[0]["optimizer"].size(), json[0]["model"].size());
  EXPECT_EQ(json[0]["unhealthy"], "");
}

TEST_F(CheckpointCommand, SaysWhatIsDamagedAndUnhealthy) {
  {
    std::fstream file(newest_ + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  scratch_.file("run/step-00000002/unhealthy.txt", "a loss that is not finite\n");
  const Outcome outcome = meshloom("checkpoint " + run_);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr(newest_ + ": damaged: "));
  EXPECT_THAT(outcome.out, HasSubstr("model.safetensors': the checksum of bytes"));
  EXPECT_THAT(outcome.out, HasSubstr("every checksum is right, unhealthy: a loss that is not finite\n"));
}

TEST_F(CheckpointCommand, RefusesWhatHoldsNone) {
  for (const std::string& path : {scratch_.path(), scratch_.path("nothing"), scratch_.path("text")}) {
    const Outcome outcome = meshloom("checkpoint " + path);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.errors(),
              std::vector<std::string>{"meshloom: checkpoint: must be a run's directory or one "
                                       "of its checkpoints; found '" +
                                       path + "'"});
  }
}

}  // namespace
}  // namespace meshloom::tests
