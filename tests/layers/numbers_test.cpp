// Traced models, run by the contracts' references, against plain loops.
#include <gtest/gtest.h>

#include "layers/config/tree.h"
#include "layers/models.h"
#include "tests/layers/interpreter.h"
#include "tests/layers/oracle.h"

namespace meshloom::layers {
namespace {

using tests::Oracle;

constexpr std::int64_t kBatch = 2, kSequence = 5;
const std::vector<std::int32_t> kTokens = {1, 4, 0, 10, 7, 3, 3, 9, 2, 5};
const std::vector<std::int32_t> kTargets = {4, 0, 10, 7, -1, 3, 9, 2, -100, 6};

// Larger than a model starts with, so that every part of it shows in the output.
std::vector<float> values(const ParameterInfo& parameter) {
  std::vector<float> v(static_cast<std::size_t>(parameter.type.elements()));
  normal(fold_path(Key{5}, parameter.path), 0, parameter.type.elements(), v.data());
  for (float& x : v) x *= parameter.decay ? 0.5f : 0.25f;
  if (parameter.path.find("norm/weight") != std::string::npos)
    for (float& x : v) x += 1;
  return v;
}

struct Results {
  Oracle::Rows logits;
  double loss_sum, token_count;
};

Results run(const CausalLM::Config& model, Oracle& oracle) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  Results results;
  for (const bool loss : {true, false}) {
    const Traced t = loss ? trace_loss(model, catalog, kBatch, kSequence)
                          : trace_logits(model, catalog, kBatch, kSequence);
    tests::Values inputs;
    inputs[t.tokens] = tests::host(t.program.value(t.tokens).type, kTokens.data());
    if (loss) inputs[t.targets] = tests::host(t.program.value(t.targets).type, kTargets.data());
    for (std::size_t i = 0; i < t.parameters.size(); ++i) {
      const ParameterInfo& parameter = t.parameters[i];
      oracle.parameters[parameter.path] = values(parameter);
      inputs[t.program.inputs[i + (loss ? 2 : 1)]] =
          tests::host(parameter.type, oracle.parameters[parameter.path].data());
    }
    const tests::Values all = tests::interpret(t.program, catalog, std::move(inputs));
    if (loss) {
      results.loss_sum = all.at(t.loss_sum).as<float>()[0];
      results.token_count = all.at(t.token_count).as<float>()[0];
    } else {
      const float* logits = all.at(t.logits).as<float>();
      for (std::int64_t row = 0; row < kBatch * kSequence; ++row)
        results.logits.emplace_back(logits + row * oracle.vocab, logits + (row + 1) * oracle.vocab);
    }
  }
  return results;
}

// Every op rounds its f32 results once, so the error grows with the number of calls on the longest way
// through the model: below 64 here. A norm in between keeps the values around 1.
constexpr double kTolerance = 64 * hal::epsilon(hal::DType::f32);

void expect_equal(const Results& got, const Oracle& oracle, bool llama, bool tied) {
  double loss = 0;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const auto row = [&](const std::vector<std::int32_t>& all) {
      return std::vector<std::int32_t>(all.begin() + b * kSequence, all.begin() + (b + 1) * kSequence);
    };
    const Oracle::Rows want = oracle.logits(row(kTokens), llama, tied);
    for (std::int64_t s = 0; s < kSequence; ++s)
      for (std::int64_t v = 0; v < oracle.vocab; ++v)
        EXPECT_NEAR(got.logits[b * kSequence + s][v], want[s][v],
                    kTolerance * std::max(1.0, std::abs(want[s][v])));
    loss += Oracle::loss(want, row(kTargets));
  }
  EXPECT_NEAR(got.loss_sum, loss, kTolerance * std::abs(loss));
  EXPECT_EQ(got.token_count, 8);
  EXPECT_GT(loss, 8);  // of no use if all were zero
}

TEST(Numbers, Llama) {
  for (const bool tied : {false, true}) {
    const CausalLM::Config model = llama_config({.vocab = 11,
                                                 .dim = 8,
                                                 .layers = 2,
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .ffn = 12,
                                                 .tied = tied,
                                                 .head_dim = 4});
    Oracle oracle{{}, 11, 8, 2, 4, 2, 12};
    expect_equal(run(model, oracle), oracle, true, tied);
  }
}

TEST(Numbers, Gpt2) {
  const CausalLM::Config model = gpt2_config({.vocab = 11, .dim = 8, .layers = 2, .heads = 2, .context = 6});
  Oracle oracle{{}, 11, 8, 2, 2, 2, 32};
  expect_equal(run(model, oracle), oracle, false, true);
}

// The comparison would notice: attention that is not causal, another theta, another eps.
TEST(Numbers, NegativeControls) {
  const LlamaShape shape{
      .vocab = 11, .dim = 8, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 12, .head_dim = 4};
  const auto furthest = [](const CausalLM::Config& model) {
    Oracle oracle{{}, 11, 8, 2, 4, 2, 12};
    const Results got = run(model, oracle);
    const Oracle::Rows want = oracle.logits({kTokens.begin(), kTokens.begin() + kSequence}, true, false);
    double most = 0;
    for (std::int64_t s = 0; s < kSequence; ++s)
      for (std::int64_t v = 0; v < 11; ++v) most = std::max(most, std::abs(got.logits[s][v] - want[s][v]));
    return most;
  };
  ClassTable classes;
  add_layer_classes(classes);
  const auto changed = [&](const char* path, const char* text) {
    CausalLM::Config model = llama_config(shape);
    EXPECT_TRUE(set(model, path, text, classes));
    return furthest(model);
  };
  EXPECT_LT(furthest(llama_config(shape)), 4 * kTolerance);
  EXPECT_GT(changed("decoder.stack.layer.attention.causal", "false"), 16 * kTolerance);
  EXPECT_GT(changed("decoder.stack.layer.attention.positions.theta", "5000"), 16 * kTolerance);
  EXPECT_GT(changed("decoder.stack.layer.attention.positions.pairing", "interleaved"), 16 * kTolerance);
  EXPECT_GT(changed("decoder.norm.eps", "0.01"), 16 * kTolerance);
}

}  // namespace
}  // namespace meshloom::layers
