// `meshloom bench calibrate` and `bench predict`: what they keep and say, and no times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/core/calibrate.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::bench {
namespace {

using testing::HasSubstr;

StepCall call_of(const std::string& key, std::vector<double> seconds, std::int64_t times = 1) {
  StepCall call;
  call.key = key;
  call.measured.group = "group";
  call.measured.work = 1;
  call.times = times;
  call.seconds = std::move(seconds);
  return call;
}

TEST(Calibrate, EqualCallsCountTogether) {
  StepReport report;
  report.calls = {call_of("a", {1, 2}), call_of("b", {5, 5}, 2), call_of("a", {3, 2})};
  report.wall = {20, 24, 22};
  report.recipe = "tiny 4x64";
  hal::DeviceInfo device;
  trainer::MeasuredTimes times(device);
  record(report, times);
  ASSERT_EQ(times.calls().size(), 2u);
  // The steps took 14 and 14 call by call, and so do the medians together.
  EXPECT_DOUBLE_EQ(times.calls().at("a").seconds, 2);
  EXPECT_DOUBLE_EQ(times.calls().at("b").seconds, 5);
  EXPECT_DOUBLE_EQ(times.between_calls(), (22.0 - 14.0) / 4);
  // A spike in one call is part of the step.
  report.calls[0].seconds = {1, 1};
  report.calls[2].seconds = {1, 11};
  record(report, times);
  EXPECT_DOUBLE_EQ(times.calls().at("a").seconds, 17.0 / 12);
}

TEST(Predict, TheMedianErrorIsOfAbsoluteValues) {
  std::vector<PredictedStep> steps(3);
  for (PredictedStep& step : steps) step.wall = 1;
  steps[0].measured = 0.9;
  steps[1].measured = 1.3;
  steps[2].measured = 1;
  EXPECT_NEAR(median_error(steps, &PredictedStep::measured_error), 0.1, 1e-12);
  EXPECT_THAT(to_text(steps), HasSubstr("median error 10.0%"));
}

TEST(CalibrateCommand, PlanTakesWhatItMeasured) {
  const tests::Scratch cache;
  const std::string with = "MESHLOOM_CACHE_DIR=" + cache.path("cache");
  const auto plan = [&](const std::string& more) {
    const tests::Outcome outcome =
        tests::meshloom("plan tiny --device cpu --set eval_batches=0 --json " + more, with);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out, nullptr, false);
  };
  const nlohmann::json before = plan("");
  EXPECT_FALSE(before["predicted_by"].contains("measured"));
  const tests::Outcome run = tests::meshloom("bench calibrate tiny --device cpu --steps 2 --quiet", with);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("used by `meshloom plan`"));
  const nlohmann::json after = plan("");
  EXPECT_TRUE(after["predicted_by"].contains("measured"));
  EXPECT_FALSE(after["predicted_by"].contains("fitted"));
  // Nothing else is chosen.
  EXPECT_EQ(after["variants"], before["variants"]);
  EXPECT_EQ(after["peak_bytes"], before["peak_bytes"]);
  EXPECT_TRUE(plan("--set batch=8")["predicted_by"].contains("similar"));
  EXPECT_FALSE(plan("--as h100")["predicted_by"].contains("measured")) << "another profile";
}

TEST(PredictCommand, ComparesAndExitsWithItsVerdict) {
  const std::string steps = "bench predict --step tiny --step 'tiny batch=2' --device cpu --steps 1 --quiet ";
  const tests::Outcome run = tests::meshloom(steps + "--max-error 10 --json");
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json json = nlohmann::json::parse(run.out, nullptr, false);
  ASSERT_EQ(json["steps"].size(), 2u);
  for (const nlohmann::json& step : json["steps"]) {
    EXPECT_GT(step["seconds"].get<double>(), 0);
    EXPECT_GT(step["predicted"].get<double>(), 0);
    EXPECT_GT(step["predicted_from_others"].get<double>(), 0);
    EXPECT_EQ(step["fitted"].get<double>(), 0) << "the other step has every kernel";
  }
  EXPECT_EQ(tests::meshloom(steps + "--max-error 0").code, 4);
  for (const char* bad : {"bench predict --device null", "bench calibrate tiny --device null",
                          "bench predict --step tinyy", "bench predict --step 'tiny batch'"}) {
    const tests::Outcome refused = tests::meshloom(std::string(bad) + " --quiet");
    EXPECT_EQ(refused.code, 1) << bad;
    EXPECT_EQ(refused.errors().size(), 1u) << refused.err;
  }
}

}  // namespace
}  // namespace meshloom::bench
