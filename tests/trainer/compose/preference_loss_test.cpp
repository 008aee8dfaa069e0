// Losses of preferences: their formulas in plain loops, their gradients, and chunks of tokens.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/config/tree.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

class PreferenceLoss : public testing::TestWithParam<const char*> {};

TEST_P(PreferenceLoss, GradientsAgainstDifferences) { check_against_differences(with_loss(GetParam())); }
TEST_P(PreferenceLoss, TheDeviceAgrees) { check_device_agrees(with_loss(GetParam())); }

INSTANTIATE_TEST_SUITE_P(All, PreferenceLoss,
                         testing::Values("DPOLoss{beta=0.5}", "DPOLoss{beta=0.5 label_smoothing=0.2}",
                                         "ChunkedLoss{base=DPOLoss{} chunk_size=4}", "SimPOLoss{}",
                                         "SimPOLoss{beta=3 gamma=1}"));

struct Sums {
  double logprob = 0, targets = 0;
};

// Of the targets with a number of kAnswers; less the reference, if it is read.
Sums sums_of(const Differentiated& d, const float* logits, int row, int answer, bool reference) {
  const std::int32_t* targets = d.inputs.at("targets").as<std::int32_t>();
  Sums sums;
  for (int at = 5 * row; at < 5 * row + 5; ++at) {
    if (static_cast<int>(kAnswers[at]) != answer || targets[at] < 0) continue;
    double total = 0;
    for (int v = 0; v < 19; ++v) total += std::exp(static_cast<double>(logits[19 * at + v]));
    sums.logprob += logits[19 * at + targets[at]] - std::log(total) - (reference ? kReference[at] : 0);
    ++sums.targets;
  }
  return sums;
}

double minus_log_sigmoid(double x) { return std::log1p(std::exp(-x)); }

struct Expected {
  double loss = 0, pairs = 0, correct = 0, margins = 0;
};

template <typename Margin, typename Loss>
void expect_formula(const std::string& loss, bool reference, const Margin& margin_of, const Loss& loss_of) {
  const layers::CausalLM::Config model = with_loss(loss);
  const Differentiated d(model);
  const layers::Traced t = layers::trace_logits(with_loss("CrossEntropy{}"), catalog(), 3, 5);
  const kernels::HostTensor logits =
      interpret(t.program, catalog(), d.inputs)[static_cast<std::size_t>(t.logits)];
  Expected want;
  for (const auto& [row, pair] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 1)}) {
    const Sums chosen = sums_of(d, logits.as<float>(), row, pair, reference),
               rejected = sums_of(d, logits.as<float>(), row, -pair, reference);
    ASSERT_GT(chosen.targets * rejected.targets, 0);
    const double margin = margin_of(chosen, rejected);
    want.loss += loss_of(margin);
    want.margins += margin;
    want.correct += margin > 0 ? 1 : 0;
    ++want.pairs;
  }
  const auto got = interpret(d.traced.program, catalog(), d.inputs);
  const auto number = [&](kernels::ValueId id) { return got[static_cast<std::size_t>(id)].as<float>()[0]; };
  EXPECT_NEAR(number(d.traced.loss_sum), want.loss, 2e-5 * want.loss);
  EXPECT_EQ(number(d.traced.token_count), want.pairs);
  EXPECT_NEAR(number(d.traced.summaries.at("preference/accuracy")), want.correct / want.pairs, 1e-6);
  EXPECT_NEAR(number(d.traced.summaries.at("preference/margin")), want.margins / want.pairs, 1e-4);
}

TEST(PreferenceLosses, DPOIsItsFormula) {
  for (const double smoothing : {0.0, 0.2})
    expect_formula(
        "DPOLoss{beta=0.3 label_smoothing=" + std::to_string(smoothing) + "}", true,
        [](const Sums& c, const Sums& r) { return 0.3 * (c.logprob - r.logprob); },
        [&](double m) { return (1 - smoothing) * minus_log_sigmoid(m) + smoothing * minus_log_sigmoid(-m); });
}

TEST(PreferenceLosses, SimPOIsItsFormula) {
  expect_formula(
      "SimPOLoss{beta=2.5 gamma=0.7}", false,
      [](const Sums& c, const Sums& r) { return 2.5 * (c.logprob / c.targets - r.logprob / r.targets); },
      [](double m) { return minus_log_sigmoid(m - 0.7); });
}

TEST(PreferenceLosses, ChunksGiveTheSameNumber) {
  const Differentiated whole(with_loss("DPOLoss{}")),
      chunked(with_loss("ChunkedLoss{base=DPOLoss{} chunk_size=4}"));
  EXPECT_FLOAT_EQ(static_cast<float>(whole.loss(whole.inputs)),
                  static_cast<float>(chunked.loss(chunked.inputs)));
}

// Training begins where the model is its reference, so that margins are 0 up to roundings, and often exactly: with logits that are all
// 0 the answers of the first row, of one target each, have equal log-probabilities.
TEST(PreferenceLosses, HaveTheirGradientAtAMarginOfZero) {
  for (const char* loss : {"DPOLoss{beta=1}", "SimPOLoss{beta=1 gamma=0}"}) {
    Differentiated d(with_loss(loss));
    const auto name = std::find_if(d.names.begin(), d.names.end(), [&](const std::string& n) {
      return n.ends_with("norm/weight") && n.find("stack") == std::string::npos;
    });
    ASSERT_NE(name, d.names.end());
    float* weight = d.inputs.at(*name).as<float>();
    const std::int64_t count = d.inputs.at(*name).type.elements();
    std::fill_n(weight, count, 0.0F);
    if (d.inputs.count("reference_logprobs"))
      std::fill_n(d.inputs.at("reference_logprobs").as<float>(), 15, 0.0F);
    const auto values = interpret(d.traced.program, catalog(), d.inputs);
    const float* gradient =
        values[static_cast<std::size_t>(d.gradients[static_cast<std::size_t>(name - d.names.begin())])]
            .as<float>();
    double largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      constexpr float kStep = 1e-2F;
      weight[i] = kStep;
      const double above = d.loss(d.inputs);
      weight[i] = -kStep;
      const double below = d.loss(d.inputs);
      weight[i] = 0;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-3) << loss << ", " << i;
      largest = std::max(largest, std::abs(static_cast<double>(gradient[i])));
    }
    EXPECT_GT(largest, 0.01) << loss;
  }
}

// A margin far from 0 overflows nothing.
TEST(PreferenceLosses, LargeMarginsStayFinite) {
  Differentiated d(with_loss("DPOLoss{beta=10}"));
  for (const float away : {-3e4F, 3e4F}) {
    d.inputs.at("reference_logprobs").as<float>()[1] = away;
    EXPECT_TRUE(std::isfinite(d.loss(d.inputs))) << away;
  }
}

TEST(PreferenceLosses, RefuseNonsense) {
  for (const char* loss :
       {"DPOLoss{beta=0}", "DPOLoss{label_smoothing=0.5}", "SimPOLoss{beta=-1}", "SimPOLoss{gamma=-0.1}"})
    EXPECT_THROW(layers::trace_loss(with_loss(loss), catalog(), 3, 5), hal::Error) << loss;
}

}  // namespace
}  // namespace meshloom::tests
