// A step that was measured beside an estimate of it.
#include "bench/core/measured_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/core/recipe.h"
#include "bench/core/train_step.h"
#include "hal/error.h"
#include "tests/bench/damage.h"
#include "tests/message_of.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"

namespace meshloom::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

EstimatedRow estimated_row(const std::string& text, std::int64_t per_step, double likely_seconds) {
  EstimatedRow row;
  row.op = "matmul";
  row.shape = row.text = text;
  row.variant = "gpu_tile";
  row.per_step = per_step;
  row.call.likely_seconds = row.call.best_seconds = likely_seconds;
  return row;
}

EstimatedStep estimate() {
  EstimatedStep step;
  step.recipe = "some 1x8 f32";
  step.tokens = 8;
  step.flops = 1e9;
  step.rows = {estimated_row("matmul a", 4, 2e-3), estimated_row("matmul b", 1, 1e-3),
               estimated_row("matmul c", 2, 1e-4)};
  return step;
}

// Calls a, three times in a loop and once alone, and b.
nlohmann::json measured() {
  return nlohmann::json::parse(
      R"({"schema": "meshloom-step/1", "header": {"device": "vulkan:0: Some GPU", "driver": "d 1"},
    "tokens": 8, "wall_seconds": 0.012, "kernel_seconds": 0.0101, "calls": [
      {"call": "matmul a", "variant": "gpu_tile", "times": 3, "seconds": 0.002},
      {"call": "matmul a", "variant": "gpu_tile", "times": 1, "seconds": 0.0026},
      {"call": "matmul b", "variant": "naive", "times": 1, "seconds": 0.0015}]})");
}

TEST(MeasuredStep, StandsBesideTheEstimate) {
  EstimatedStep step = estimate();
  compare(step, parse_measured_step(measured().dump(), "'step.json'"), "'step.json'");
  ASSERT_EQ(step.rows.size(), 3u);
  EXPECT_EQ(step.rows[0].text, "matmul a") << "0.6 ms apart";
  EXPECT_DOUBLE_EQ(step.rows[0].measured_seconds, 8.6e-3);
  EXPECT_TRUE(step.rows[0].agrees()) << "by 8 %";
  EXPECT_EQ(step.rows[1].text, "matmul b") << "0.5 ms apart";
  EXPECT_TRUE(step.rows[1].compared());
  EXPECT_FALSE(step.rows[1].agrees());
  EXPECT_FALSE(step.rows[2].compared());
  const std::string text = to_text(step, 12);
  EXPECT_THAT(text, HasSubstr("gpu_tile (measured: naive)"));
  EXPECT_THAT(text, HasSubstr("1.50 !"));
  EXPECT_THAT(text,
              HasSubstr("some 1x8 f32: measured 12 ms, 667 tokens/s, 0.0833 TFLOP/s (whole step on vulkan:0: "
                        "Some GPU, d 1), its calls 10.1 ms one after another\n"));
  EXPECT_THAT(text,
              HasSubstr("1 of 2 kinds of calls, 85 % of their measured time, are within 20 % of what is "
                        "likely; ! marks the others\n"));
  EXPECT_THAT(text, HasSubstr("1 kinds of calls of the estimate were not measured"));
  const auto json = nlohmann::json::parse(to_json(step, {}));
  EXPECT_DOUBLE_EQ(json["measured_wall_seconds"], 0.012);
  EXPECT_DOUBLE_EQ(json["calls"][1]["measured_seconds"], 0.0015);
  EXPECT_FALSE(json["calls"][2].contains("measured_seconds"));
  EXPECT_THAT(to_text(estimate(), 12), Not(HasSubstr("measured")));
}

TEST(MeasuredStep, AnotherStepIsRefused) {
  const auto told = [](const nlohmann::json& file) {
    return tests::message_of([&] {
      EstimatedStep step = estimate();
      compare(step, parse_measured_step(file.dump(), "'x'"), "'x'");
    });
  };
  EXPECT_EQ(told(measured()), "no error");
  for (const char* name : {"tokens", "wall_seconds", "kernel_seconds"}) {
    auto file = measured();
    file.erase(name);
    EXPECT_THAT(told(file), HasSubstr(std::string("'x': must have the field ") + name));
  }
  for (const char* name : {"call", "times", "seconds"}) {
    auto file = measured();
    file["calls"][1].erase(name);
    EXPECT_THAT(told(file), HasSubstr(std::string("'x', calls[1]: must have the field ") + name));
  }
  auto file = measured();
  file["tokens"] = 16;
  EXPECT_THAT(told(file), HasSubstr("'x': must be of a step of 8 tokens, as this recipe has; found 16"));
  file = measured();
  for (auto& call : file["calls"]) call["call"] = "matmul of another recipe";
  EXPECT_THAT(told(file), HasSubstr("must have calls of this recipe; found none of them"));
  file = measured();
  file["wall_seconds"] = 0;
  EXPECT_THAT(told(file), HasSubstr("must have the time of a whole step"));
  file = measured();
  file["schema"] = "meshloom-bench/1";
  EXPECT_THAT(told(file), HasSubstr("'x', schema: must be \"meshloom-step/1\""));
  file.erase("calls");
  EXPECT_THAT(told(file), HasSubstr("schema"));
}

TEST(MeasuredStep, FuzzedFilesAreReadOrRefused) {
  const std::string good = measured().dump(1);
  int read = 0;
  const int rounds = tests::damage_rounds();
  for (int round = 0; round < rounds; ++round) {
    kernels::Rng rng(static_cast<std::uint64_t>(round));
    EstimatedStep step = estimate();
    try {
      compare(step, parse_measured_step(tests::damaged(good, rng), "fuzz"), "fuzz");
      to_text(step, 12);
      ++read;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, rounds / 50) << "some damage is harmless";
  EXPECT_LT(read, rounds);
}

// The calls of a run are those of the estimate of its recipe, as often in a step, by their texts.
TEST(MeasuredStep, HasEveryCallOfTheRecipe) {
  kernels::Catalog catalog;
  hal::Registry registry;
  kernels::add_contracts(catalog);
  register_backends(registry, catalog);
  const auto device = registry.open("cpu");
  trainer::TrainerConfig config = trainer::tiny();
  config.accumulation = 2;
  const trainer::Plan plan = plan_of(config, catalog, device->info());
  StepReport report;
  run_steps(config, plan_of(config, catalog, device->info()), *device, catalog, 1, {}, {}, report);
  const MeasuredStep step = parse_measured_step(to_json(report, {"op"}), "'step.json'");
  EXPECT_NEAR(step.kernel_seconds, report.kernel_seconds(), 1e-12);
  const std::vector<Workload> calls = recipe_workloads(plan, catalog);
  ASSERT_GT(calls.size(), 10u);
  std::size_t variants = 0;
  for (const auto& [text, kind] : step.calls) variants += !kind.variant.empty();
  EXPECT_EQ(variants, step.calls.size());
  for (const Workload& call : calls) {
    const auto it = step.calls.find(call.call());
    ASSERT_NE(it, step.calls.end()) << call.call();
    EXPECT_EQ(it->second.times, call.per_step) << call.call();
    EXPECT_EQ(it->second.variant, call.planned->variant->name) << call.call();
  }
}

}  // namespace
}  // namespace meshloom::bench
