// Predicted times: what they rest on, and that no variant is predicted to do more than it can.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "hal/driver.h"
#include "kernels/core/contract.h"
#include "kernels/program/call_text.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/cost/cost_model.h"
#include "trainer/compose/passes/roofline.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

using kernels::Choice;
using kernels::TimeBasis;
using testing::HasSubstr;
using trainer::CostModel;
using trainer::MeasuredTimes;
using trainer::Plan;

Plan plan_of(const std::string& recipe, const std::string& dtype, const hal::DeviceInfo& device) {
  trainer::TrainerConfig config = trainer::find_recipe(recipe).make();
  config.dtype = dtype;
  trainer::ComposeOptions options = config.compose_options();
  options.enforce_memory = false;
  options.evaluation = false;
  return compose_training(*config.model, *config.learner, options, catalog(), device);
}

// Calls `visit` with every call that runs a kernel.
template <typename Visit>
void for_each_call(const Plan& plan, Visit visit) {
  for (const auto& [step, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls) {
      if (call.choice->variant->contract->view) continue;
      const kernels::CallTypes types(planned.program, call);
      visit(call, types.view(call));
    }
}

TEST(PredictedTime, NoVariantExceedsItsUnit) {
  for (const char* device : {"null:vulkan", "null:opencl"})
    for (const hal::Profile& profile : hal::shipped_profiles())
      for (const char* dtype : {"f32", "bf16"})
        for (const char* recipe : {"tiny", "smollm2-135m"}) {
          const auto opened = build().registry.open(device, profile.name);
          const hal::DeviceInfo& info = opened->info();
          const Plan plan = plan_of(recipe, dtype, info);
          double worst = 1e9;
          for_each_call(plan, [&](const kernels::Call& call, const kernels::CallView& view) {
            const double rate = trainer::unit_rate(*call.choice, view, info);
            ASSERT_GT(call.choice->predicted_seconds, 0);
            EXPECT_GE(call.choice->predicted_seconds, call.choice->floor_seconds);
            if (rate > 0)
              worst = std::min(worst, rate * call.choice->predicted_seconds /
                                          std::max(1.0, catalog().contract(call.op).flops(view)));
          });
          EXPECT_GE(worst, 1) << device << " as " << profile.name << ", " << recipe << " in " << dtype;
          EXPECT_GE(plan.update_predicted_seconds(), plan.update_roofline_seconds());
          EXPECT_DOUBLE_EQ(plan.update_predicted_seconds(), plan.update_predicted_seconds(TimeBasis::fitted));
        }
}

// The times of another device say nothing about this one, so the plans of two processes are equal.
TEST(PredictedTime, IsTheSameAgain) {
  const auto device = build().registry.open("null:vulkan", "rx7900xtx");
  EXPECT_EQ(plan_of("tiny", "bf16", device->info()).update_predicted_seconds(),
            plan_of("tiny", "bf16", device->info()).update_predicted_seconds());
}

class Measured : public testing::Test {
 protected:
  std::unique_ptr<hal::Device> device = build().registry.open("null:vulkan", "h100");
  const kernels::Variant* variant = catalog().find("matmul", "vulkan", "gpu_tile");

  void SetUp() override {
    if (!variant) GTEST_SKIP() << "Vulkan was not built";
  }

  // A product of (rows, 256) and (256, 256).
  struct Product {
    std::vector<kernels::TensorType> inputs, outputs;
    kernels::Attrs attrs;
    explicit Product(std::int64_t rows)
        : inputs{{kernels::DType::f32, {rows, 256}}, {kernels::DType::f32, {256, 256}}},
          outputs{{kernels::DType::f32, {rows, 256}}} {}
    kernels::CallView view() const { return {"matmul", inputs, outputs, attrs}; }
    std::string key() const { return kernels::call_text("matmul", inputs, attrs); }
  };
  Choice choice(const Product& product) const {
    kernels::Fit fit = variant->answer(product.view(), device->info());
    EXPECT_TRUE(fit.ok) << fit.reason;
    return {variant, fit.params, fit.workspace_bytes};
  }
  void time(MeasuredTimes& times, const Product& product, double seconds) const {
    const Choice chosen = choice(product);
    trainer::MeasuredCall call = trainer::measured_call(product.view(), chosen);
    call.seconds = seconds;
    times.set(trainer::measured_key(product.key(), chosen), call);
  }
  Choice predicted(const MeasuredTimes& times, const Product& product) const {
    Choice chosen = choice(product);
    CostModel(device->info(), times).predict(chosen, product.key(), product.view());
    return chosen;
  }
};

TEST_F(Measured, TheCallItselfIsTakenAsItIs) {
  MeasuredTimes times(device->info());
  time(times, Product(512), 3e-3);
  times.set_step("one", {14e-3, 10e-3, 4});  // 1 ms for each call
  const Choice chosen = predicted(times, Product(512));
  EXPECT_EQ(chosen.basis, TimeBasis::measured);
  EXPECT_DOUBLE_EQ(chosen.predicted_seconds, 4e-3);
  EXPECT_GT(chosen.floor_seconds, 0);
}

TEST_F(Measured, OtherSizesAreScaled) {
  MeasuredTimes times(device->info());
  const double start = 1e-4;
  for (const std::int64_t rows : {256, 512, 4096})
    time(times, Product(rows), start + 1e-6 * static_cast<double>(rows));
  for (const std::int64_t rows : {1024, 2048, 8192}) {
    const Choice chosen = predicted(times, Product(rows));
    EXPECT_EQ(chosen.basis, TimeBasis::similar);
    // Work is not quite proportional to rows, since B is read once.
    EXPECT_NEAR(chosen.predicted_seconds / (start + 1e-6 * static_cast<double>(rows)), 1, 0.02) << rows;
  }
  // One time alone is scaled by the work.
  MeasuredTimes one(device->info());
  time(one, Product(1024), 1e-3);
  const Choice half = predicted(one, Product(512));
  EXPECT_LE(half.predicted_seconds, 1e-3);
  EXPECT_GE(half.predicted_seconds, 0.5e-3);
}

TEST_F(Measured, OtherSizesNeverExceedTheUnit) {
  MeasuredTimes times(device->info());
  time(times, Product(512), 1e-12);  // faster than the chip
  const Choice chosen = predicted(times, Product(4096));
  EXPECT_EQ(chosen.predicted_seconds, chosen.floor_seconds);
}

TEST_F(Measured, AnotherKernelIsFitted) {
  MeasuredTimes times(device->info());
  time(times, Product(512), 3e-3);
  Product product(512);
  Choice chosen{catalog().find("matmul", "vulkan", "naive"), {}, 0};
  CostModel(device->info(), times).predict(chosen, product.key(), product.view());
  EXPECT_EQ(chosen.basis, TimeBasis::fitted);
  EXPECT_GT(chosen.predicted_seconds, chosen.floor_seconds);
}

TEST(MeasuredSteps, GiveWhatIsBetweenCalls) {
  const auto device = build().registry.open("null");
  MeasuredTimes times(device->info());
  EXPECT_EQ(times.between_calls(), 0);
  times.set_step("many", {2.0, 1.0, 1000});
  EXPECT_DOUBLE_EQ(times.between_calls(), 1e-3);
  times.set_step("few", {1.005, 1.0, 5});
  EXPECT_NEAR(times.between_calls(), 1e-3, 1e-9);
  times.set_step("overlapping", {1.0, 3.0, 1000});
  EXPECT_LT(times.between_calls(), 0);
}

TEST_F(Measured, FilesSayWhatTheyHold) {
  MeasuredTimes times(device->info());
  time(times, Product(512), 3e-3);
  times.set_step("one", {14e-3, 10e-3, 4});
  const std::string text = times.to_json();
  EXPECT_EQ(MeasuredTimes::parse(text, "here").to_json(), text);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string broken = text;
    broken.replace(broken.find(from), from.size(), to);
    return message_of([&] { MeasuredTimes::parse(broken, "here"); });
  };
  EXPECT_THAT(refused("meshloom-measured/1", "meshloom-measured/0"),
              HasSubstr("must be meshloom-measured/1"));
  EXPECT_THAT(refused("\"seconds\": 0.003", "\"seconds\": 0"), HasSubstr("more than 0 seconds"));
  EXPECT_THAT(refused("\"seconds\": 0.003", "\"second\": 1"), HasSubstr("must be a file of measured times"));
  EXPECT_THAT(refused("\"calls\": 4.0", "\"calls\": 0"), HasSubstr("a step must have calls"));
  EXPECT_THAT(refused("{", "["), HasSubstr("here"));
}

TEST(Efficiencies, MatchEveryVariantOfEveryBackend) {
  std::set<std::string> sources;
  for (const char* device : {"null:vulkan", "null:opencl", "null:cpu", "null:lavapipe", "null:pocl"})
    for (const char* profile : {"h100", "tpu-v5e", "trn2", "host-cpu"}) {
      const auto opened = build().registry.open(device, profile);
      EXPECT_GE(trainer::launch_seconds(opened->info()).first, 0);
      for (const kernels::Contract* contract : catalog().contracts())
        for (const kernels::Variant* variant : catalog().variants(contract->name, opened->info().backend)) {
          const trainer::Efficiency& found = trainer::efficiency_of({variant, {}, 0}, opened->info());
          EXPECT_GT(found.flops, 0);
          EXPECT_FALSE(found.source.empty());
          sources.insert(found.source);
        }
    }
  EXPECT_GT(sources.size(), 2u);
}

}  // namespace
}  // namespace meshloom::tests
