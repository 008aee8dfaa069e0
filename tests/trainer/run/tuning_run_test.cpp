// Runs that are continued after `meshloom bench tune`, as a user does both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

const std::string kSettings = "--device cpu --set batch=1 --set sequence=16 --set eval_batches=0";

class TuningRuns : public testing::Test {
 protected:
  TuningRuns() {
    ::setenv("MESHLOOM_CACHE_DIR", scratch_.path("cache").c_str(), 1);
    text_ = scratch_.file("text.txt", sample_text(20000));
  }

  Outcome train(const std::string& out, int steps, const std::string& more = {}) {
    return meshloom("train tiny --quiet --sample 0 " + kSettings + " --data " + text_ + " --steps " +
                    std::to_string(steps) + " --out " + scratch_.path(out) + more);
  }
  std::string model(const std::string& out) {
    return read_text(scratch_.path(out) + "/step-00000004/model.safetensors");
  }
  // The hash of the run's kernels.
  std::string kernels(const std::string& out) {
    return nlohmann::json::parse(
        read_text(scratch_.path(out) + "/step-00000004/state.json"))["machine"]["kernels_xxh64"];
  }
  // As if the plainest matmul had been the fastest for every call.
  void tune() {
    ASSERT_EQ(meshloom("bench tune tiny --quiet --budget 5s --op matmul " + kSettings).code, 0);
    int changed = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path("cache/tuning"))) {
      if (entry.path().extension() != ".json") continue;
      nlohmann::json file = nlohmann::json::parse(read_text(entry.path()));
      for (auto& [name, call] : file["calls"].items()) {
        call["variant"] = "naive";
        call["params"] = nlohmann::json::object();
        ++changed;
      }
      std::ofstream(entry.path()) << file;
    }
    ASSERT_GT(changed, 0);
  }

  Scratch scratch_;
  std::string text_;
};

TEST_F(TuningRuns, KeepTheKernelsThatTheyBeganWith) {
  ASSERT_EQ(train("whole", 4).code, 0);
  ASSERT_EQ(train("parts", 2).code, 0);
  tune();
  const Outcome resumed = train("parts", 4, " --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(model("parts") == model("whole"));
  EXPECT_EQ(kernels("parts"), kernels("whole"));
  ASSERT_EQ(train("new", 4).code, 0);
  EXPECT_NE(kernels("new"), kernels("whole")) << "a run that begins now uses what was measured";
}

TEST_F(TuningRuns, SayWhatIsWrongWithTheirFile) {
  ASSERT_EQ(train("run", 2).code, 0);
  std::ofstream(scratch_.path("run") + "/tuning.json") << "{";
  const Outcome resumed = train("run", 4, " --resume");
  EXPECT_EQ(resumed.code, 1);
  EXPECT_THAT(resumed.err, HasSubstr("/run/tuning.json'"));
}

}  // namespace
}  // namespace meshloom::tests
