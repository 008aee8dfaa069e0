// Dropout: how much is dropped and when, and that it depends only on seed, step, path and position.
#include "layers/wrappers/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dropout/dropout.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

layers::ClassTable classes() {
  layers::ClassTable table;
  layers::add_layer_classes(table);
  return table;
}

void wrap(layers::CausalLM::Config& model, const std::string& where, const std::string& wrapper) {
  layers::wrap(model, {.where = where}, *layers::parse(wrapper, classes(), "wrapper"), "base", classes());
}

// Dropout on the embeddings, the branches, the probabilities and an adapter, stochastic depth on the
// feed-forwards.
layers::CausalLM::Config dropping(double rate = 0.3) {
  layers::CausalLM::Config model = tiny_llama();
  const std::string text = std::to_string(rate);
  layers::set(model, "decoder.stack.layer.attention.dropout", text, classes());
  wrap(model, "decoder.stack.layer.attention.q_proj", "Lora{rank=2 dropout=" + text + "}");
  wrap(model, "decoder.stack.layer.attention", "Dropout{rate=" + text + "}");
  wrap(model, "decoder.stack.layer.feed_forward", "StochasticDepth{rate=" + text + "}");
  wrap(model, "decoder.stack", "Dropout{input=true rate=" + text + "}");
  return model;
}

struct Step {
  std::int32_t seed = 1, step = 0;
};

// Metrics of one step in which nothing moves.
std::vector<float> metrics_of(const layers::Config& model, const trainer::ComposeOptions& options,
                              const std::string& device, const Step& step) {
  Bench bench(device);
  bench.start(trainer::compose_training(model, adamw(), options, catalog(), bench.device->info()));
  bench.set_rate(0);
  const Batch batch = random_batch(options.batch, options.sequence, 19, 5);
  const std::size_t count = static_cast<std::size_t>(options.rows() * options.sequence);
  for (std::int64_t part = 0; part < options.accumulation; ++part) {
    const auto rows = [&](const std::vector<std::int32_t>& all) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(count) * part;
      return std::vector<std::int32_t>(from, from + static_cast<std::ptrdiff_t>(count));
    };
    const std::int32_t rng_state[] = {step.seed, step.step, static_cast<std::int32_t>(part * options.rows())};
    bench.feed({rows(batch.tokens), rows(batch.targets)});
    bench.session->write("rng_state", std::as_bytes(std::span(rng_state)));
    bench.session->run(options.accumulation == 1 ? trainer::Step::train : trainer::Step::accumulate);
  }
  if (options.accumulation > 1) bench.session->run(trainer::Step::apply);
  return bench.read("metrics");
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  const double eps = 64 * hal::epsilon(kernels::DType::f32);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(got[i], want[i], eps * std::abs(want[i])) << what << " " << i;
}

TEST(Dropout, GradientsAgainstDifferences) { check_against_differences(dropping()); }

TEST(Dropout, DropsAsManyAsItsRateSays) {
  kernels::Program program;
  kernels::Builder builder(catalog(), program);
  const kernels::Tensor x = builder.input("x", {kernels::DType::f32, {64, 1000}}, kernels::Role::input);
  const kernels::Tensor draw = builder.input("rng_state", {kernels::DType::i32, {3}}, kernels::Role::input);
  std::vector<kernels::ValueId> ids;
  for (const std::uint64_t key : {1, 2})
    ids.push_back(kernels::dropout(x, draw, {.rate = 0.2, .key = key, .rows = 64}).id);
  const auto run = [&](std::int32_t seed, std::int32_t step) {
    kernels::HostTensor ones(x.type()), words(draw.type());
    std::fill_n(ones.as<float>(), 64000, 1.0f);
    words.as<std::int32_t>()[0] = seed;
    words.as<std::int32_t>()[1] = step;
    return interpret(program, catalog(), {{"x", ones}, {"rng_state", words}});
  };
  const auto values = [&](const std::vector<kernels::HostTensor>& all, std::size_t which) {
    const float* data = all[static_cast<std::size_t>(ids[which])].as<float>();
    return std::vector<float>(data, data + 64000);
  };
  const auto first = run(3, 0);
  const std::vector<float> one = values(first, 0);
  const auto zeros = static_cast<double>(std::count(one.begin(), one.end(), 0.0f));
  EXPECT_NEAR(zeros / 64000, 0.2, 5 * std::sqrt(0.2 * 0.8 / 64000));  // five standard deviations
  EXPECT_NEAR(*std::max_element(one.begin(), one.end()), 1.25, 1e-6);
  // Another key, step or seed draws others: equal in as many places as chance has it.
  for (const std::vector<float>& other : {values(first, 1), values(run(3, 1), 0), values(run(4, 0), 0)}) {
    double same = 0;
    for (std::size_t i = 0; i < one.size(); ++i) same += one[i] == other[i];
    EXPECT_NEAR(same / 64000, 0.68, 5 * std::sqrt(0.68 * 0.32 / 64000));
  }
  EXPECT_EQ(values(run(3, 0), 0), one);
}

TEST(Dropout, EveryDeviceDropsTheSame) {
  const trainer::ComposeOptions options = small_options();
  const std::vector<float> want = metrics_of(dropping(), options, "cpu", {});
  for (const std::string& device : computing_devices())
    expect_near(metrics_of(dropping(), options, device, {}), want, device);
  // The checker sees another mask.
  for (const Step& other : {Step{2, 0}, Step{1, 1}})
    EXPECT_GT(std::abs(metrics_of(dropping(), options, "cpu", other)[0] - want[0]), 1e-4 * want[0]);
}

TEST(Dropout, MicroBatchesDropWhatTheWholeBatchDoes) {
  trainer::ComposeOptions options = small_options();
  const std::vector<float> want = metrics_of(dropping(), options, "cpu", {3, 8});
  for (const std::int64_t parts : {2, 4}) {
    options.accumulation = parts;
    expect_near(metrics_of(dropping(), options, "cpu", {3, 8}), want, std::to_string(parts));
  }
}

TEST(Dropout, RecomputingDrawsTheSame) {
  trainer::ComposeOptions options = small_options();
  const std::vector<float> want = metrics_of(dropping(), options, "cpu", {3, 8});
  options.remat = {{".*", trainer::RematPolicy::recompute}};
  EXPECT_EQ(metrics_of(dropping(), options, "cpu", {3, 8}), want);
}

TEST(Dropout, SixteenBitsDropTheSame) {
  trainer::ComposeOptions options = small_options();
  const std::vector<float> want = metrics_of(dropping(), options, "cpu", {3, 8});
  options.dtype = kernels::DType::bf16;
  for (const std::string& device : computing_devices())
    EXPECT_NEAR(metrics_of(dropping(), options, device, {3, 8})[0], want[0], 0.02 * want[0]) << device;
}

// Keys of the calls by path.
std::map<std::string, std::int64_t> keys(const layers::Config& model, bool training = true) {
  std::map<std::string, std::int64_t> found;
  const layers::Traced traced = layers::trace_loss(model, catalog(), 2, 4, training);
  for (const kernels::Call& call : traced.program.calls)
    if (call.op == "dropout") found[call.path] = call.attrs.integer("key");
  return found;
}

TEST(Dropout, SiblingsChangeNobodysDraws) {
  layers::CausalLM::Config model = tiny_llama();
  wrap(model, "decoder.stack.layer.attention", "Dropout{rate=0.1}");
  const auto before = keys(model);
  ASSERT_EQ(before.size(), 3u);
  std::set<std::int64_t> different;
  for (const auto& [path, key] : before) different.insert(key);
  EXPECT_EQ(different.size(), 3u);
  wrap(model, "decoder.stack.layer.feed_forward", "Dropout{rate=0.5}");
  wrap(model, "decoder.stack", "Dropout{input=true}");
  const auto after = keys(model);
  EXPECT_EQ(after.size(), 7u);
  for (const auto& [path, key] : before) EXPECT_EQ(after.at(path), key) << path;
}

TEST(Dropout, IsOffWhereNothingIsLearned) {
  EXPECT_TRUE(keys(dropping(), false).empty());
  EXPECT_TRUE(keys(dropping(0)).empty());
  for (const kernels::Call& call : layers::trace_logits(dropping(), catalog(), 2, 4).program.calls)
    EXPECT_NE(call.op, "dropout");
}

TEST(Dropout, IsTakenOutOfAModel) {
  layers::CausalLM::Config model = dropping(), plain = tiny_llama();
  layers::set(model, "decoder.embedding", "DropoutEmbedding{}", classes());
  wrap(plain, "decoder.stack.layer.attention.q_proj", "Lora{rank=2 dropout=0.3}");
  EXPECT_EQ(layers::diff(plain, *layers::inference_config(model)), "");
}

TEST(Dropout, StochasticDepthGrowsWithDepth) {
  for (const char* stack : {"Stack", "HeterogeneousStack"}) {
    layers::CausalLM::Config model = tiny_llama();
    layers::replace(model, "Stack", std::string(stack) + "{}", classes());
    wrap(model, "decoder.stack.layer.feed_forward", "StochasticDepth{rate=0.3 grows=true}");
    std::vector<double> rates;
    for (const kernels::Call& call : layers::trace_loss(model, catalog(), 2, 4).program.calls)
      if (call.op == "dropout") rates.push_back(call.attrs.number("rate"));
    ASSERT_EQ(rates.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rates[i], 0.1 * static_cast<double>(i + 1), 1e-12);
  }
}

TEST(Dropout, BadRatesAreSaid) {
  const auto message = [](const std::string& attention) {
    layers::CausalLM::Config model = tiny_llama();
    try {
      layers::set(model, "decoder.stack.layer.attention", attention, classes());
      layers::trace_loss(model, catalog(), 1, 4);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message("Dropout{base=Attention{num_heads=4} rate=1}"),
              HasSubstr("attention: Dropout.rate must be at least 0 and below 1; found 1"));
  EXPECT_THAT(message("StochasticDepth{base=Attention{num_heads=4} rate=-0.1}"),
              HasSubstr("StochasticDepth.rate must be at least 0 and below 1; found -0.1"));
  layers::CausalLM::Config outside = tiny_llama();
  wrap(outside, "decoder.stack", "StochasticDepth{grows=true}");
  EXPECT_THAT(message_of([&] { layers::trace_loss(outside, catalog(), 1, 4); }),
              HasSubstr("must be in a layer of a stack"));
  EXPECT_THAT(message("Attention{num_heads=4 dropout=1}"),
              HasSubstr("Attention.dropout must be at least 0 and below 1; found 1"));
  EXPECT_THAT(message("Dropout{base=Dropout{base=Attention{num_heads=4}}}"), HasSubstr("a name of its own"));
}

}  // namespace
}  // namespace meshloom::tests
