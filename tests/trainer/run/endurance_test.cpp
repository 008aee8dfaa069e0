// A long run takes no more memory than a short one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

struct Sample {
  int steps = 0;  // lines of metrics.jsonl
  long resident_kb = 0;
};

// Seen while the run was going on: a line "STEPS KILOBYTES" each.
std::vector<Sample> parse(const std::string& text) {
  std::vector<Sample> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Sample sample;
    if (words >> sample.steps >> sample.resident_kb) samples.push_back(sample);
  }
  return samples;
}

// The growth in kB from the first sample after a third of the steps, when every kind of work was done several
// times.
long growth(const std::vector<Sample>& samples, int steps) {
  long first = -1, last = -1;
  for (const Sample& sample : samples) {
    if (sample.steps < steps / 3 || sample.steps >= steps) continue;
    if (first < 0) first = sample.resident_kb;
    last = sample.resident_kb;
  }
  EXPECT_GE(first, 0) << "no sample was taken";
  return last - first;
}

// What allocators and drivers may still take; a leak of a few kB per step is more.
constexpr long kMaxGrowth = 2048;

struct Long {
  const char* device;
  int steps;
};

class Endurance : public testing::TestWithParam<Long> {};

TEST_P(Endurance, MemoryStaysTheSame) {
  const Scratch scratch;
  scratch.file("text", sample_text(30000));
  const std::string metrics = scratch.path("run/metrics.jsonl"), steps = std::to_string(GetParam().steps),
                    often = std::to_string(GetParam().steps / 12);
  const Outcome outcome = meshloom(
      "train tiny --quiet --sample 0 --set sequence=8 --set batch=1 --set model.decoder.stack.num_layers=1 "
      "--set checkpoint_every=" +
      often + " --set eval_every=" + often +
      " --set eval_batches=1 --set learner.schedule.total_steps=" + steps + " --steps " + steps +
      " --device " + GetParam().device + " --data " + scratch.path("text") + " --out " + scratch.path("run") +
      " & pid=$!; while rss=$(grep VmRSS /proc/$pid/status); do [ -f " + metrics + " ] && echo $(wc -l < " +
      metrics + ") ${rss#VmRSS:}; sleep 0.05; done 2>/dev/null; wait $pid");
  if (outcome.err.find("needs a device") != std::string::npos) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(growth(parse(outcome.out), GetParam().steps), kMaxGrowth) << outcome.out;

  std::istringstream lines(read_text(metrics));
  std::int64_t first = 0;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::int64_t bytes = nlohmann::json::parse(line)["peak_bytes"];
    if (count == 0) first = bytes;
    ASSERT_EQ(bytes, first) << "on the device, step " << count + 1;
  }
  EXPECT_EQ(count, GetParam().steps);
}

INSTANTIATE_TEST_SUITE_P(All, Endurance,
                         testing::Values(Long{"cpu", 2500}, Long{"opencl", 400}, Long{"vulkan", 200}),
                         [](const auto& info) { return std::string(info.param.device); });

TEST(EnduranceControl, ALeakIsSeen) {
  std::string steady, leaking;
  for (int step = 0; step < 2500; step += 50) {
    steady += std::to_string(step) + " " + std::to_string(step == 0 ? 9000 : 20000) + " kB\n";
    leaking += std::to_string(step) + " " + std::to_string(20000 + 2 * step) + " kB\n";
  }
  EXPECT_LT(growth(parse(steady), 2500), kMaxGrowth);
  EXPECT_GT(growth(parse(leaking), 2500), kMaxGrowth);
}

}  // namespace
}  // namespace meshloom::tests
