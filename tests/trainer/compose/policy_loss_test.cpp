// The loss of answers that the model has drawn: its formula in plain loops, its gradient, and chunks of tokens.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/config/tree.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

class PolicyLoss : public testing::TestWithParam<const char*> {};

TEST_P(PolicyLoss, GradientsAgainstDifferences) { check_against_differences(with_loss(GetParam())); }
TEST_P(PolicyLoss, TheDeviceAgrees) { check_device_agrees(with_loss(GetParam())); }

INSTANTIATE_TEST_SUITE_P(All, PolicyLoss,
                         testing::Values("GRPOLoss{}", "GRPOLoss{clip_low=0.9 clip_high=5}",
                                         "ChunkedLoss{base=GRPOLoss{} chunk_size=4}"));

// -log softmax(logits)[target]
double cross_entropy_of(const float* logits, int target) {
  double total = 0;
  for (int v = 0; v < 19; ++v) total += std::exp(static_cast<double>(logits[v]));
  return std::log(total) - logits[target];
}

struct Inputs {
  Differentiated d{with_loss("GRPOLoss{clip_low=0.1 clip_high=0.3}")};
  kernels::HostTensor logits;
  std::int32_t* targets = d.inputs.at("targets").as<std::int32_t>();
  float *advantages = d.inputs.at("advantages").as<float>(), *old = d.inputs.at("old_logprobs").as<float>();

  Inputs() {
    const layers::Traced t = layers::trace_logits(with_loss("CrossEntropy{}"), catalog(), 3, 5);
    logits = interpret(t.program, catalog(), d.inputs)[static_cast<std::size_t>(t.logits)];
  }
  double logprob(int at) const { return -cross_entropy_of(logits.as<float>() + 19 * at, targets[at]); }
};

TEST(PolicyLosses, AreTheirFormula) {
  Inputs in;
  double loss = 0, count = 0, clipped = 0, kl = 0;
  for (int at = 0; at < 15; ++at) {
    if (in.targets[at] < 0) continue;
    // Ratios of 0.5 to 2: within the clip and beyond it, for advantages of both signs.
    in.old[at] = static_cast<float>(in.logprob(at) - 0.7 + 0.1 * at);
    const double log_ratio = in.logprob(at) - in.old[at], ratio = std::exp(log_ratio), a = in.advantages[at];
    const double within = std::min(std::max(ratio, 0.9), 1.3);
    loss -= std::min(ratio * a, within * a);
    clipped += within * a < ratio * a ? 1 : 0;
    kl += ratio - 1 - log_ratio;
    ++count;
  }
  ASSERT_GT(clipped, 2);
  ASSERT_LT(clipped, count - 2);
  const auto got = interpret(in.d.traced.program, catalog(), in.d.inputs);
  const auto number = [&](kernels::ValueId id) { return got[static_cast<std::size_t>(id)].as<float>()[0]; };
  EXPECT_NEAR(number(in.d.traced.loss_sum), loss, 1e-5 * count);
  EXPECT_EQ(number(in.d.traced.token_count), count);
  EXPECT_NEAR(number(in.d.traced.summaries.at("policy/clip_fraction")), clipped / count, 1e-6);
  EXPECT_NEAR(number(in.d.traced.summaries.at("policy/approx_kl")), kl / count, 1e-5);
}

// Where the parameters have drawn the tokens themselves, the ratio is 1 up to rounding: the gradient must be that of -A log p whatever
// side of 1 it falls on.
TEST(PolicyLosses, HaveTheGradientOfThePolicyAtARatioOfOne) {
  Inputs in;
  for (int at = 0; at < 15; ++at) in.old[at] = in.targets[at] < 0 ? 0 : static_cast<float>(in.logprob(at));
  const auto gradients = [](const Differentiated& d) {
    const auto values = interpret(d.traced.program, catalog(), d.inputs);
    std::vector<double> all;
    for (const kernels::ValueId id : d.gradients) {
      const kernels::HostTensor& gradient = values[static_cast<std::size_t>(id)];
      all.insert(all.end(), gradient.as<float>(), gradient.as<float>() + gradient.type.elements());
    }
    return all;
  };
  const std::vector<double> got = gradients(in.d);
  // The same of the cross-entropy of one token at a time, with its advantage.
  std::vector<double> want(got.size(), 0);
  Differentiated plain(with_loss("CrossEntropy{}"));
  for (int at = 0; at < 15; ++at) {
    if (in.targets[at] < 0) continue;
    std::fill_n(plain.inputs.at("targets").as<std::int32_t>(), 15, -1);
    plain.inputs.at("targets").as<std::int32_t>()[at] = in.targets[at];
    const std::vector<double> one = gradients(plain);
    for (std::size_t i = 0; i < one.size(); ++i) want[i] += in.advantages[at] * one[i];
  }
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    difference = std::max(difference, std::abs(want[i] - got[i]));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LT(difference, 1e-4 * largest);
}

TEST(PolicyLosses, LargeRatiosStayFinite) {
  Inputs in;
  for (const float away : {-3e4F, 3e4F}) {
    in.old[1] = away;
    EXPECT_TRUE(std::isfinite(in.d.loss(in.d.inputs))) << away;
  }
}

TEST(PolicyLosses, RefuseNonsense) {
  for (const char* loss : {"GRPOLoss{clip_low=0}", "GRPOLoss{clip_low=1.5}", "GRPOLoss{clip_high=0}"})
    EXPECT_THROW(layers::trace_loss(with_loss(loss), catalog(), 3, 5), hal::Error) << loss;
}

}  // namespace
}  // namespace meshloom::tests
