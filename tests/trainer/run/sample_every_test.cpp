// Text that is generated while a run goes on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

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

// On every device: what `plan` says is what the device allocates at most, and losses have the bits of a run without samples.
TEST_F(SampleEvery, TakesTheMemoryThatPlanSays) {
  for (const std::string device : {"cpu", "opencl", "vulkan"}) {
    const std::string recipe = "tiny --batch 1 --set sequence=40 --device " + device;
    if (meshloom("plan " + recipe).code != 0) continue;  // there is none
    std::map<std::string, std::vector<double>> losses;
    for (const std::string options : {"", " --sample-every 0.001"}) {
      SCOPED_TRACE(device + options);
      const Outcome planned = meshloom("plan " + recipe + options + " --json");
      ASSERT_EQ(planned.code, 0) << planned.err;
      const nlohmann::json plan = nlohmann::json::parse(planned.out);
      EXPECT_EQ(plan["memory"].contains("cache"), !options.empty());
      const std::string out = scratch_.path(device + (options.empty() ? "-without" : "-with"));
      const Outcome run =
          meshloom("train " + recipe + options + " --steps 6 --sample 50 --data " + data_ + " --out " + out);
      ASSERT_EQ(run.code, 0) << run.err;
      EXPECT_THAT(run.out,
                  HasSubstr(fmt::format(" {} bytes on the device,", plan["peak_bytes"].get<std::int64_t>())));
      EXPECT_EQ(run.out.find(", sample (prompt") != std::string::npos, !options.empty());
      std::istringstream lines(read_text(out + "/metrics.jsonl"));
      for (std::string line; std::getline(lines, line);) {
        const nlohmann::json step = nlohmann::json::parse(line);
        losses[options].push_back(step["loss"]);
        EXPECT_EQ(step["peak_bytes"], plan["peak_bytes"]);
      }
    }
    EXPECT_EQ(losses[""].size(), 6u);
    EXPECT_EQ(losses[""], losses[" --sample-every 0.001"]) << device;
  }
}

// Kernel rules name variants for the calls of training, and a sample's have other shapes: here fewer rows than a tile.
TEST_F(SampleEvery, KernelRulesAreNotOfSamples) {
  const std::string rule =
      " --steps 2 --sample 8 --set model.decoder.dim=256 --set 'kernels=[KernelRule{op=matmul "
      "path=\"**.q_proj\" "
      "variant=rows params=[\"tile_m=256\"]}]'";
  for (const std::string more : {"", " --sample-every 0.001"}) {
    const Outcome run = train("rule" + std::to_string(more.size()), rule + more);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("\nsample (prompt | continuation):\n"));
  }
}

TEST_F(SampleEvery, SaysWhereNoCacheKeepsWhatWasComputed) {
  const std::string relative = " --set model.decoder.stack.layer.attention.distance_bias=RelativeBias{}";
  const Outcome run = train("relative", "--steps 3 --sample 20 --sample-every 0.001" + relative);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("each token of a sample computes the whole text in front of it: decoder/"));
  EXPECT_THAT(run.out, HasSubstr("step 1, sample (prompt | continuation):\n"));
}

TEST_F(SampleEvery, OfAModelWithAnEncoder) {
  std::string pairs;
  for (int i = 0; i < 300; ++i)
    pairs += fmt::format("{{\"prompt\": \"say {0}\", \"completion\": \"said {0}\"}}\n", i);
  const Outcome run =
      meshloom("train tiny-pairs --device cpu --steps 3 --sample 20 --sample-every 0.001 --data " +
               scratch_.file("pairs.jsonl", pairs) + " --out " + scratch_.path("pairs"));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err.find("computes the whole text"), std::string::npos);
  EXPECT_THAT(run.out, HasSubstr("step 1, sample (prompt | completion):\n"));
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
