// What takes less memory beside the parameters: moments of eight bits, and gradients that are freed as they are used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hal/math.h"
#include "kernels/adamw_8bit/adamw_8bit.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/update.h"
#include "trainer/learner/adamw_8bit.h"
#include "trainer/learner/lion.h"
#include "trainer/learner/sgd.h"

namespace meshloom::tests {
namespace {

using ::testing::HasSubstr;
using trainer::ComposeOptions;
using trainer::Learner;
using trainer::Plan;

// Parameters take far more memory than activations.
layers::CausalLM::Config wide_llama() {
  return layers::llama_config(
      {.vocab = 67, .dim = 64, .layers = 3, .heads = 4, .kv_heads = 2, .ffn = 192, .tied = true});
}

template <typename Config>
Config learner(double clip_norm = 0) {
  Config config;
  config.peak_learning_rate = 2e-3;
  config.clip_norm = clip_norm;
  return config;
}

struct Trained {
  Plan plan;
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> values;  // of f32 that outlive a step
};

Trained train(const std::string& device, const Learner::Config& learner, const ComposeOptions& options,
              int steps) {
  const layers::CausalLM::Config model = wide_llama();
  Bench bench(device);
  bench.start(trainer::compose_training(model, learner, options, catalog(), bench.device->info()));
  EXPECT_EQ(bench.device->allocated_bytes(), bench.session->plan().peak_bytes);
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    bench.set_rate(2e-3f);
    bench.feed(random_batch(options.batch, options.sequence, 67, 100 + static_cast<std::uint64_t>(step % 8)));
    bench.session->run(trainer::Step::train);
    const std::vector<float> metrics = bench.read("metrics");
    EXPECT_EQ(metrics.at(static_cast<std::size_t>(trainer::Metric::applied)), 1) << step;
    EXPECT_EQ(metrics.at(static_cast<std::size_t>(trainer::Metric::step)), step + 1);
    trained.losses.push_back(metrics[0] / metrics[1]);
  }
  for (const auto& [name, type] : bench.session->plan().persistent_types)
    if (type.dtype == kernels::DType::f32 && !name.starts_with("grad/"))
      trained.values[name] = bench.read(name);
  trained.plan = bench.session->plan();
  return trained;
}

// The mean losses of each round over the eight batches are within `tolerance`: what single batches of so few tokens lose moves
// with every rounding.
void expect_like(const Trained& got, const Trained& want, double tolerance) {
  constexpr std::size_t kRound = 8;
  for (std::size_t begin = 0; begin + kRound <= want.losses.size(); begin += kRound) {
    double a = 0, b = 0;
    for (std::size_t i = begin; i < begin + kRound; ++i) {
      a += got.losses[i];
      b += want.losses[i];
    }
    EXPECT_NEAR(a, b, tolerance * b) << "from step " << begin;
  }
}

class OptimizerMemory : public testing::TestWithParam<std::string> {};

TEST_P(OptimizerMemory, EightBitMomentsTrainLikeWholeOnes) {
  ComposeOptions options = small_options();
  options.batch = 1;
  const auto whole = learner<trainer::AdamW::Config>(1);
  const auto coded = learner<trainer::AdamW8bit::Config>(1);
  const Trained plain = train(GetParam(), whole, options, 64), eight = train(GetParam(), coded, options, 64);
  expect_like(eight, plain, 0.01);
  EXPECT_LT(eight.losses.back(), 0.9 * eight.losses.front());
  EXPECT_NE(eight.losses, plain.losses);
  EXPECT_LE(static_cast<double>(eight.plan.peak_bytes), 0.70 * static_cast<double>(plain.plan.peak_bytes));
  std::int64_t quantized = 0;
  for (const layers::ParameterInfo& info : eight.plan.parameters) {
    const std::int64_t count = info.type.elements();
    const bool codes = count >= coded.min_8bit_size;
    quantized += codes;
    for (const char* slot : {"m", "v"})
      EXPECT_EQ(eight.plan.persistent_types.at(std::string("optimizer/") + slot + "/" + info.path).bytes(),
                codes ? hal::ceil_div(count, std::int64_t{256}) * 260 : 4 * count)
          << info.path;
  }
  EXPECT_GT(quantized, 10);
  const Trained again = train(GetParam(), coded, options, 64);
  EXPECT_EQ(again.losses, eight.losses);
  EXPECT_EQ(again.values, eight.values);
}

TEST_P(OptimizerMemory, UpdatesInBackwardAreThoseAfterIt) {
  ComposeOptions options = small_options();
  options.batch = 1;
  const auto compare = [&](const Learner::Config& learner, ComposeOptions options) {
    SCOPED_TRACE(std::string(learner.class_name()) + " " + std::string(hal::to_string(options.dtype)));
    options.optimizer_in_backward = false;
    const Trained after = train(GetParam(), learner, options, 6);
    options.optimizer_in_backward = true;
    const Trained early = train(GetParam(), learner, options, 6);
    EXPECT_EQ(early.losses, after.losses);
    for (const auto& [name, values] : after.values)
      EXPECT_TRUE(name == "metrics" || early.values.at(name) == values) << name;
    std::int64_t parameters = 0, largest = 0;
    for (const layers::ParameterInfo& info : after.plan.parameters) {
      parameters += info.type.bytes();
      largest = std::max(largest, info.type.bytes());
    }
    // What is left of the gradients: few at a time.
    EXPECT_LT(early.plan.peak_bytes, after.plan.peak_bytes - parameters + 6 * largest);
  };
  auto averaged = learner<trainer::AdamW::Config>();
  averaged.ema = trainer::Ema{};
  trainer::ParameterGroup group;
  group.where = "**/attention/**";
  group.learning_rate_factor = 0.5;
  averaged.parameter_groups.emplace_back(group);
  compare(learner<trainer::AdamW::Config>(), options);
  compare(averaged, options);
  compare(learner<trainer::AdamW8bit::Config>(), options);
  compare(learner<trainer::Lion::Config>(), options);
  options.remat = {{.policy = trainer::RematPolicy::recompute}};
  compare(learner<trainer::Sgd::Config>(), options);
  options.dtype = kernels::DType::bf16;
  compare(learner<trainer::AdamW::Config>(), options);
}

// Stored in bf16, parameters take half the bytes and learn what those in f32 learn, though most steps are smaller than the
// distance between neighbours.
TEST_P(OptimizerMemory, ParametersInBf16LearnByStochasticRounding) {
  ComposeOptions options = small_options();
  options.batch = 1;
  const auto compare = [&](const Learner::Config& learner, ComposeOptions options) {
    SCOPED_TRACE(std::string(learner.class_name()) + " " + std::string(hal::to_string(options.dtype)));
    const Trained wide = train(GetParam(), learner, options, 64);
    options.param_dtype = kernels::DType::bf16;
    const Trained narrow = train(GetParam(), learner, options, 64);
    expect_like(narrow, wide, 0.03);
    EXPECT_LT(narrow.losses.back(), 0.95 * narrow.losses.front());
    std::int64_t parameters = 0;
    for (const layers::ParameterInfo& info : narrow.plan.parameters) {
      EXPECT_EQ(info.type.dtype, kernels::DType::bf16) << info.path;
      EXPECT_EQ(narrow.plan.persistent_types.at(info.path), info.type) << info.path;
      parameters += info.type.bytes();
    }
    // A copy in f32 of one tensor at a time is all that is added.
    EXPECT_LT(narrow.plan.peak_bytes, wide.plan.peak_bytes - parameters / 2);
    const Trained again = train(GetParam(), learner, options, 64);
    EXPECT_EQ(again.losses, narrow.losses);
  };
  compare(learner<trainer::AdamW::Config>(1), options);
  options.dtype = kernels::DType::bf16;
  options.optimizer_in_backward = true;
  compare(learner<trainer::AdamW8bit::Config>(), options);
}

INSTANTIATE_TEST_SUITE_P(Devices, OptimizerMemory, testing::ValuesIn(computing_devices()),
                         [](const auto& info) { return plain_name(info.param); });

// A gradient that is not finite stops its own parameter alone, and the step does not count.
TEST(OptimizerInBackward, SkipsTheParameterWhoseGradientIsNotFinite) {
  for (const bool in_backward : {false, true}) {
    kernels::Program program;
    kernels::Builder builder(catalog(), program);
    const kernels::TensorType type{kernels::DType::f32, {8}}, one{kernels::DType::f32, {1}};
    std::vector<layers::ParameterInfo> infos;
    std::vector<kernels::Tensor> parameters, gradients;
    for (const char* name : {"a", "b"}) {
      layers::ParameterInfo info;
      info.path = name;
      info.type = type;
      info.axes = {"embed"};
      infos.push_back(info);
      parameters.push_back(builder.input(name, type, kernels::Role::parameter));
      gradients.push_back(builder.input(std::string("g") + name, type, kernels::Role::input));
    }
    const trainer::BatchSums sums{{"loss_sum", "token_count"},
                                  {builder.input("loss_sum", one, kernels::Role::input),
                                   builder.input("token_count", one, kernels::Role::input)}};
    trainer::write_update(builder, learner<trainer::AdamW::Config>(), infos, parameters, gradients, {}, sums,
                          {}, in_backward);
    Memory inputs;
    for (const kernels::ValueId id : program.inputs) {
      kernels::HostTensor& tensor = inputs[program.value(id).name] =
          kernels::HostTensor(program.value(id).type);
      std::fill_n(tensor.as<float>(), tensor.type.elements(), 0.5f);
    }
    inputs.at("gb").as<float>()[3] = std::numeric_limits<float>::infinity();
    inputs.at("token_count").as<float>()[0] = 4;
    inputs.at("optimizer/step").as<float>()[0] = 7;
    const std::vector<kernels::HostTensor> values = interpret(program, catalog(), inputs);
    const auto value = [&](const std::string& name) {
      for (const kernels::ValueId id : program.outputs)
        if (program.value(id).name == name) return values[static_cast<std::size_t>(id)].as<float>();
      throw hal::Error("value", "must be an output", name);
    };
    for (const char* stays : {"b", "optimizer/m/b", "optimizer/v/b"})
      EXPECT_EQ(value(stays)[0], 0.5f) << stays;
    for (const char* name : {"a", "optimizer/m/a", "optimizer/v/a"})
      EXPECT_EQ(value(name)[0] != 0.5f, in_backward) << name;
    EXPECT_EQ(value("optimizer/step")[0], 7);
    EXPECT_EQ(value("metrics")[static_cast<std::size_t>(trainer::Metric::applied)], 0);
  }
}

TEST(OptimizerInBackward, IsRefusedWhereGradientsMustWait) {
  const auto refusal = [](const Learner::Config& learner, ComposeOptions options) {
    options.optimizer_in_backward = true;
    return message_of([&] {
      trainer::compose_training(wide_llama(), learner, options, catalog(),
                                build().registry.open("cpu")->info());
    });
  };
  const ComposeOptions options = small_options();
  const auto free = learner<trainer::AdamW::Config>();
  EXPECT_EQ(refusal(free, options), "no error");
  EXPECT_THAT(
      refusal(learner<trainer::AdamW::Config>(1), options),
      HasSubstr(
          "optimizer_in_backward: needs a learner that does not clip, because the norm is known after the "
          "last gradient; found learner.clip_norm=1"));
  ComposeOptions parts = options, scaled = options;
  parts.accumulation = 2;
  EXPECT_THAT(refusal(free, parts), HasSubstr("found accumulation=2"));
  scaled.dtype = kernels::DType::f16;
  EXPECT_THAT(refusal(free, scaled), HasSubstr("needs no loss scale"));
}

}  // namespace
}  // namespace meshloom::tests
