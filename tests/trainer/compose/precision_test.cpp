// Training in 16 bits: which values have low precision; every device agrees with the reference, and the loss
// is near that of f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/precision.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using trainer::ComposeOptions;
using trainer::Metric;
using trainer::Plan;

ComposeOptions options_of(DType dtype, std::int64_t accumulation = 1) {
  ComposeOptions options = small_options();
  options.dtype = dtype;
  options.accumulation = accumulation;
  return options;
}

Plan plan_for(const layers::Config& model, const ComposeOptions& options, const hal::DeviceInfo& device) {
  return trainer::compose_training(model, adamw(), options, catalog(), device);
}

double entry(const std::vector<float>& metrics, Metric metric) {
  return metrics.at(static_cast<std::size_t>(metric));
}

// Loss per token of every step, on batches that depend on the step only.
std::vector<double> losses(const layers::Config& model, const ComposeOptions& options, int steps,
                           const std::string& device, Bench* keep = nullptr) {
  Bench own(device);
  Bench& bench = keep ? *keep : own;
  bench.start(plan_for(model, options, bench.device->info()));
  std::vector<double> result;
  for (int step = 0; step < steps; ++step) {
    bench.set_rate(1e-2f);
    if (options.accumulation == 1) {
      bench.feed(
          random_batch(options.batch, options.sequence, 19, 100 + static_cast<std::uint64_t>(step % 4)));
      bench.session->run(trainer::Step::train);
    } else {
      for (std::int64_t i = 0; i < options.accumulation; ++i) {
        bench.feed(random_batch(options.batch / options.accumulation, options.sequence, 19,
                                static_cast<std::uint64_t>(100 + 10 * (step % 4) + i)));
        bench.session->run(trainer::Step::accumulate);
      }
      bench.session->run(trainer::Step::apply);
    }
    const std::vector<float> metrics = bench.read("metrics");
    result.push_back(entry(metrics, Metric::loss_sum) / entry(metrics, Metric::token_count));
  }
  return result;
}

// Every call by the double-precision reference, with the same dtypes.
ComposeOptions by_reference(ComposeOptions options) {
  options.kernels.push_back({".*", ".*", "reference"});
  return options;
}

class LowPrecision : public testing::TestWithParam<DType> {};

TEST_P(LowPrecision, ActivationsAreNarrowAndSumsAreNot) {
  for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2()}) {
    Bench bench("cpu");
    const Plan plan = plan_for(model, options_of(GetParam()), bench.device->info());
    int products = 0;
    for (const auto& [name, planned] : plan.steps.programs)
      for (const kernels::Call& call : planned.program.calls) {
        const auto type = [&](kernels::ValueId id) { return planned.program.value(id).type; };
        if (call.op == "matmul" || call.op == "flash_attention") {
          ++products;
          EXPECT_EQ(type(call.inputs[0]).dtype, GetParam()) << call.path << " " << call.op;
        }
        if (call.op == "cross_entropy") {
          EXPECT_EQ(type(call.inputs[0]).dtype, GetParam());
          EXPECT_EQ(type(call.outputs[0]).dtype, DType::f32);
        }
        if (call.op == "adamw" || call.op == "square_sum") {
          EXPECT_EQ(type(call.inputs[0]).dtype, DType::f32) << call.path;
        }
        // The gradient of a parameter is computed by the product in f32 and not rounded.
        if (call.op == "cast") {
          EXPECT_NE(planned.program.value(call.outputs[0]).role, kernels::Role::gradient) << call.path;
        }
      }
    EXPECT_GT(products, 0);
    for (const auto& [name, type] : plan.persistent_types)
      EXPECT_EQ(hal::is_low_precision(type.dtype), trainer::is_parameter_copy(name)) << name;
  }
}

TEST_P(LowPrecision, EveryDeviceAgreesWithTheReference) {
  const layers::CausalLM::Config model = tiny_llama();
  const std::vector<double> want = losses(model, by_reference(options_of(GetParam())), 5, "cpu");
  for (const std::string& device : computing_devices()) {
    const std::vector<double> got = losses(model, options_of(GetParam()), 5, device);
    // Roundings to neighbours add up over steps: a few units in the last place of what the loss is made of.
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 2 * hal::epsilon(GetParam()) * want[i]) << device << " step " << i;
  }
}

TEST_P(LowPrecision, TheLossIsNearThatOfF32) {
  for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2()}) {
    const std::vector<double> wide = losses(model, options_of(DType::f32), 30, "cpu");
    const std::vector<double> narrow = losses(model, options_of(GetParam()), 30, "cpu");
    EXPECT_LT(narrow.back(), 0.8 * narrow.front());
    for (std::size_t i = 0; i < wide.size(); ++i)
      EXPECT_NEAR(narrow[i], wide[i], 0.1 * wide[i]) << "step " << i;  // large steps drive the two apart
  }
}

TEST_P(LowPrecision, SameSeedSameBits) {
  const layers::CausalLM::Config model = tiny_llama();
  for (std::int64_t accumulation : {1, 2})
    EXPECT_EQ(losses(model, options_of(GetParam(), accumulation), 4, "cpu"),
              losses(model, options_of(GetParam(), accumulation), 4, "cpu"));
}

TEST_P(LowPrecision, RematerialisationKeepsEveryBit) {
  const layers::CausalLM::Config model = tiny_llama();
  ComposeOptions again = options_of(GetParam());
  again.remat = {{".*", trainer::RematPolicy::recompute}};
  EXPECT_EQ(losses(model, options_of(GetParam()), 4, "cpu"), losses(model, again, 4, "cpu"));
}

TEST_P(LowPrecision, LogitsComeInF32) {
  Bench bench("cpu");
  ComposeOptions options = options_of(GetParam());
  options.logits_batch = 1;
  options.logits_sequence = 5;
  const Plan plan = plan_for(tiny_llama(), options, bench.device->info());
  EXPECT_EQ(plan.persistent_types.at("logits"), (kernels::TensorType{DType::f32, {1, 5, 19}}));
}

INSTANTIATE_TEST_SUITE_P(DTypes, LowPrecision, testing::Values(DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(hal::to_string(info.param)); });

// The scale at a place where gradients overflow f16: halved step by step until they do not, and nothing moves
// before.
TEST(LossScale, SurvivesAnOverflow) {
  Bench bench("cpu");
  const layers::CausalLM::Config model = tiny_llama();
  bench.start(plan_for(model, options_of(DType::f16), bench.device->info()));
  const float huge = 0x1p24f;
  bench.session->write("optimizer/loss_scale", std::as_bytes(std::span(&huge, 1)));
  bench.set_rate(1e-2f);
  bench.feed(random_batch(4, 6, 19, 3));
  const std::string weight = bench.session->plan().parameters.front().path;
  const std::vector<float> before = bench.read(weight);
  bench.session->run(trainer::Step::train);
  EXPECT_EQ(entry(bench.read("metrics"), Metric::applied), 0);
  EXPECT_EQ(bench.read(weight), before);
  EXPECT_EQ(bench.read("optimizer/loss_scale")[0], huge / 2);
  for (int i = 0; i < 20 && entry(bench.read("metrics"), Metric::applied) == 0; ++i)
    bench.session->run(trainer::Step::train);
  EXPECT_EQ(entry(bench.read("metrics"), Metric::applied), 1);
  EXPECT_NE(bench.read(weight), before);
  const std::vector<float> metrics = bench.read("metrics");
  EXPECT_EQ(bench.session->plan().metrics.at("metrics").back(), "loss_scale");
  EXPECT_EQ(metrics.back(), bench.read("optimizer/loss_scale")[0]);
  EXPECT_EQ(bench.read("optimizer/loss_scale_steps")[0], 1);
}

// After a thousand good steps it doubles, up to a limit.
TEST(LossScale, GrowsToALimit) {
  Bench bench("cpu");
  bench.start(plan_for(tiny_llama(), options_of(DType::f16, 2), bench.device->info()));
  const float good = 999;
  bench.set_rate(0);
  std::vector<float> scales;
  for (int i = 0; i < 6; ++i) {
    bench.session->write("optimizer/loss_scale_steps", std::as_bytes(std::span(&good, 1)));
    bench.feed(random_batch(2, 6, 19, 3));
    bench.session->run(trainer::Step::accumulate);
    bench.session->run(trainer::Step::accumulate);
    bench.session->run(trainer::Step::apply);
    scales.push_back(bench.read("optimizer/loss_scale")[0]);
  }
  EXPECT_EQ((std::vector<float>(scales.begin(), scales.begin() + 3)),
            (std::vector<float>{8192, 16384, 32768}));
  // Gradients before a norm may overflow earlier; the scale then falls again.
  for (float scale : scales) EXPECT_LE(scale, 32768);
}

}  // namespace
}  // namespace meshloom::tests
