#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/learner/support.h"

namespace meshloom::tests {
namespace {

TEST(RMSprop, FollowsItsFormulas) {
  for (const ParameterShape& shape : kShapes)
    for (const double momentum : {0.0, 0.75})
      expect_follows(
          "RMSprop{peak_learning_rate=1 alpha=0.875 weight_decay=0.25 momentum=" + std::to_string(momentum) +
              "}",
          shape,
          [&](Doubles& p, auto& slots, const Doubles& g, double rate, double, const ParameterShape& s) {
            Doubles& v = slot(slots, "v", p.size());
            for (std::size_t i = 0; i < p.size(); ++i) {
              const double gradient = g[i] + decay_of(s, 0.25) * p[i];
              v[i] = 0.875 * v[i] + 0.125 * gradient * gradient;
              double step = gradient / (std::sqrt(v[i]) + 1e-8);
              if (momentum > 0) {
                Doubles& m = slot(slots, "m", p.size());
                m[i] = momentum * m[i] + step;
                step = m[i];
              }
              p[i] -= rate * step;
            }
          });
}

// The numbers are those of torch.optim.RMSprop (PyTorch 2.15) in double precision.
TEST(RMSprop, IsPyTorchs) {
  const std::vector<GradientStep> steps{
      {{0.5, -1, 0.25}, 0.125, 1}, {{-2, 0.125, 0}, 0.125, 1}, {{0.75, 0.5, -3}, 0.125, 1}};
  const auto expect = [&](const std::string& text, const Doubles& want) {
    const auto config = parse_learner(text);
    const auto& learner = dynamic_cast<const trainer::Learner::Config&>(*config);
    const Updated got = run_updates(learner, {1, 3}, {1, -2, 0.5}, steps);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.parameter[i], want[i], 1e-6) << text << i;
  };
  expect("RMSprop{peak_learning_rate=1}", {0.533671995, -1.46582295, 0.495768145});
  expect("RMSprop{peak_learning_rate=1 alpha=0.875 momentum=0.75 weight_decay=0.25}",
         {0.601310045, -1.10370129, -0.0303320123});
}

TEST(RMSprop, RefusesNonsense) {
  for (const char* bad : {"alpha=1", "alpha=-0.1", "eps=0", "momentum=1", "weight_decay=-1"})
    EXPECT_ANY_THROW(dynamic_cast<const trainer::Learner::Config&>(
                         *parse_learner("RMSprop{peak_learning_rate=1 " + std::string(bad) + "}"))
                         .check())
        << bad;
}

}  // namespace
}  // namespace meshloom::tests
