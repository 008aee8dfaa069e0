// Rows of several documents: the loss and gradients of each are those it has alone, on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "layers/config/tree.h"
#include "layers/position/sinusoidal.h"
#include "tests/trainer/compose/support.h"
#include "trainer/learner/sgd.h"

namespace meshloom::tests {
namespace {

constexpr std::int64_t kVocabulary = 19;

struct Sums {
  double loss = 0, count = 0;
  std::map<std::string, std::vector<double>> gradients;

  void add(const Sums& other) {
    loss += other.loss;
    count += other.count;
    for (const auto& [name, values] : other.gradients) {
      std::vector<double>& mine = gradients[name];
      mine.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) mine[i] += values[i];
    }
  }
};

// Of rows of one length; their documents, or none.
struct Rows {
  std::int64_t sequence;
  std::vector<std::int32_t> tokens, targets, segments, positions;
};

Sums sums_of(const layers::Config& model, const std::string& device, const Rows& rows) {
  Bench bench(device);
  trainer::ComposeOptions options;
  options.sequence = rows.sequence;
  options.batch = 2 * static_cast<std::int64_t>(rows.tokens.size()) / rows.sequence;
  options.accumulation = 2;  // leaves sums of gradients
  options.evaluation = false;
  options.documents = !rows.segments.empty();
  bench.start(trainer::compose_training(model, adamw(), options, catalog(), bench.device->info()));
  bench.feed({rows.tokens, rows.targets});
  if (options.documents) {
    bench.session->write("segments", std::as_bytes(std::span(rows.segments)));
    bench.session->write("positions", std::as_bytes(std::span(rows.positions)));
  }
  bench.session->run(trainer::Step::accumulate);
  Sums sums;
  sums.loss = bench.read("accumulate/loss_sum")[0];
  sums.count = bench.read("accumulate/token_count")[0];
  for (const layers::ParameterInfo& info : bench.session->plan().parameters) {
    const std::vector<float> values = bench.read("grad/" + info.path);
    sums.gradients[info.path].assign(values.begin(), values.end());
  }
  return sums;
}

layers::CausalLM::Config with(layers::CausalLM::Config model, const std::string& field,
                              const std::string& text) {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  layers::set(model, "decoder.stack.layer.attention." + field, text, classes);
  return model;
}

// Without losses of the router's own, which are of a whole batch.
layers::CausalLM::Config with_experts(layers::CausalLM::Config model) {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  layers::replace(model, "FeedForward", "MoE{num_experts=3 gating=TopK{regularizers=[]}}", classes);
  return model;
}

class Documents : public testing::TestWithParam<std::string> {};

layers::CausalLM::Config with_waves(layers::CausalLM::Config model) {
  model.decoder->positions = layers::SinusoidalPosition::Config{};
  return model;
}

TEST_P(Documents, LearnAsIfTheyWereAlone) {
  // Rotations, learned positions, masks that would see padding or that count from a document's begin, learned
  // biases, and experts that would get padding.
  for (const layers::CausalLM::Config& model :
       {tiny_llama(), tiny_gpt2(), with(tiny_llama(), "mask", "Full{}"), with_waves(tiny_gpt2()),
        with(tiny_llama(), "mask", "MaskFunction{visible=\"k < 2 or (q - k) % 3 == 0\" base=Causal{}}"),
        with(tiny_llama(), "distance_bias", "RelativeBias{buckets=4 max_distance=6 init=Normal{std=0.5}}"),
        with_experts(tiny_llama())}) {
    const std::vector<std::vector<std::int64_t>> row_lengths{{5, 4, 1}, {11}};  // of 12
    Rows packed{12, {}, {}, {}, {}};
    Sums want;
    std::uint64_t seed = 7;
    for (const auto& lengths : row_lengths) {
      std::int32_t segment = 0;
      std::int64_t used = 0;
      for (const std::int64_t length : lengths) {
        const Batch document = random_batch(1, length, kVocabulary, ++seed);
        want.add(sums_of(model, GetParam(), {length, document.tokens, document.targets, {}, {}}));
        ++segment;
        for (std::int64_t i = 0; i < length; ++i) {
          packed.tokens.push_back(document.tokens[static_cast<std::size_t>(i)]);
          packed.targets.push_back(document.targets[static_cast<std::size_t>(i)]);
          packed.segments.push_back(segment);
          packed.positions.push_back(static_cast<std::int32_t>(i));
        }
        used += length;
      }
      for (; used < 12; ++used) {
        packed.tokens.push_back(3);
        packed.targets.push_back(-1);
        packed.segments.push_back(0);
        packed.positions.push_back(0);
      }
    }
    const Sums got = sums_of(model, GetParam(), packed);
    const double eps = 64 * hal::epsilon(kernels::DType::f32);
    EXPECT_EQ(got.count, want.count);
    EXPECT_NEAR(got.loss, want.loss, eps * want.loss);
    ASSERT_EQ(got.gradients.size(), want.gradients.size());
    for (const auto& [name, values] : want.gradients) {
      double highest = 0;
      for (const double value : values) highest = std::max(highest, std::abs(value));
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(got.gradients.at(name)[i], values[i], eps * std::max(highest, 0.1)) << name << " " << i;
    }
    // The checker sees a difference: without segments the first row's documents see each other.
    Rows mixed = packed;
    std::fill(mixed.segments.begin(), mixed.segments.end(), 1);
    const Sums other = sums_of(model, GetParam(), mixed);
    double apart = std::abs(other.loss - want.loss) / want.loss;
    for (const auto& [name, values] : want.gradients)
      for (std::size_t i = 0; i < values.size(); ++i)
        apart = std::max(apart, std::abs(other.gradients.at(name)[i] - values[i]));
    EXPECT_GT(apart, 2 * eps);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Documents, testing::ValuesIn(computing_devices()),
                         [](const auto& info) { return plain_name(info.param); });

// Micro-batches with other numbers of targets than their neighbours weigh by them.
TEST(Accumulation, EqualsTheWholeBatchWhateverTheTargets) {
  Batch batch = random_batch(4, 6, kVocabulary, 3);
  for (std::size_t i = 0; i < 6; ++i) batch.targets[i] = -1;    // none in the first row
  for (std::size_t i = 13; i < 18; ++i) batch.targets[i] = -1;  // one in the third
  batch.targets[12] = 4;
  const layers::CausalLM::Config model = tiny_llama();
  trainer::Sgd::Config sgd;
  sgd.peak_learning_rate = 0.5;
  std::vector<std::vector<float>> metrics;
  std::vector<std::map<std::string, std::vector<float>>> parameters;
  for (const std::int64_t parts : {1, 2, 4}) {
    trainer::ComposeOptions options = small_options();
    options.accumulation = parts;
    Bench bench("cpu");
    bench.start(trainer::compose_training(model, sgd, options, catalog(), bench.device->info()));
    bench.set_rate(0.5f);
    const std::size_t count = batch.tokens.size() / static_cast<std::size_t>(parts);
    for (std::size_t from = 0; from < batch.tokens.size(); from += count) {
      const auto part = [&](const std::vector<std::int32_t>& all) {
        return std::vector<std::int32_t>(all.begin() + static_cast<std::ptrdiff_t>(from),
                                         all.begin() + static_cast<std::ptrdiff_t>(from + count));
      };
      bench.feed({part(batch.tokens), part(batch.targets)});
      bench.session->run(parts == 1 ? trainer::Step::train : trainer::Step::accumulate);
    }
    if (parts > 1) bench.session->run(trainer::Step::apply);
    metrics.push_back(bench.read("metrics"));
    for (const layers::ParameterInfo& info : bench.session->plan().parameters) {
      parameters.resize(metrics.size());
      parameters.back()[info.path] = bench.read(info.path);
    }
  }
  const double eps = 64 * hal::epsilon(kernels::DType::f32);
  for (std::size_t run = 1; run < metrics.size(); ++run) {
    for (std::size_t i = 0; i < metrics[0].size(); ++i)
      EXPECT_NEAR(metrics[run][i], metrics[0][i], eps * std::abs(metrics[0][i])) << i;
    for (const auto& [name, values] : parameters[0])
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(parameters[run][name][i], values[i], eps * std::max(1.0f, std::abs(values[i])))
            << name << " " << i;
  }
}

}  // namespace
}  // namespace meshloom::tests
