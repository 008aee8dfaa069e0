// Eight-bit moments: their codes, and the updates they lead to beside those of AdamW.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/adamw_8bit/adamw_8bit.h"
#include "tests/message_of.h"
#include "tests/trainer/learner/support.h"

namespace meshloom::tests {
namespace {

TEST(MomentCodes, AreADynamicTree) {
  EXPECT_EQ(kernels::moment_magnitude(0), 0);
  for (int code = 1; code < 256; ++code) {
    EXPECT_GT(kernels::moment_magnitude(code), kernels::moment_magnitude(code - 1)) << code;
    EXPECT_EQ(kernels::moment_code(kernels::moment_magnitude(code)), code);
    const double middle = (kernels::moment_magnitude(code) + kernels::moment_magnitude(code - 1)) / 2;
    EXPECT_EQ(kernels::moment_code(middle * (1 + 1e-12)), code);
    EXPECT_EQ(kernels::moment_code(middle * (1 - 1e-12)), code - 1);
  }
  // Every decade ends at its power of ten.
  for (int j = 0; j < 8; ++j)
    EXPECT_NEAR(kernels::moment_magnitude((2 << j) - 1), std::pow(10.0, j - 7),
                1e-12 * std::pow(10.0, j - 7));
  // The first moments' largest magnitude, whose code has seven bits, is the scale too.
  EXPECT_NEAR(10 * kernels::moment_magnitude(127), 1, 1e-12);
}

const trainer::Learner::Config& learner_of(const layers::Config& config) {
  return dynamic_cast<const trainer::Learner::Config&>(config);
}

TEST(AdamW8bit, IsAdamWForSmallParameters) {
  for (const ParameterShape& shape : kShapes)
    expect_follows(
        "AdamW8bit{peak_learning_rate=0.5 weight_decay=0.2}", shape,
        [](Doubles& p, auto& slots, const Doubles& g, double rate, double step, const ParameterShape& s) {
          Doubles &m = slot(slots, "m", p.size()), &v = slot(slots, "v", p.size());
          for (std::size_t i = 0; i < p.size(); ++i) {
            m[i] = 0.9 * m[i] + 0.1 * g[i];
            v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
            const double root = std::sqrt(v[i] / (1 - std::pow(0.95, step))) + 1e-8;
            p[i] -= rate * (m[i] / (1 - std::pow(0.9, step)) / root + decay_of(s, 0.2) * p[i]);
          }
        });
}

// The parameters stay near those of AdamW, in the mean within a tenth of the way that those went, where gradients differ by a
// factor of a thousand within each block: the smallest first moments have some eight codes per power of ten.
TEST(AdamW8bit, StaysNearAdamW) {
  constexpr ParameterShape kShape{70, 33};
  const std::size_t count = 70 * 33;
  std::vector<GradientStep> steps;
  for (std::uint64_t i = 0; i < 60; ++i) {
    steps.push_back({random_values(count, 10 + i), 1e-2, 0.5, i % 7 != 3});
    // A part of the gradients is the same in each step, and their sizes differ by element.
    const Doubles constant = random_values(count, 5);
    for (std::size_t k = 0; k < count; ++k)
      steps.back().gradient[k] =
          (constant[k] + 0.5 * steps.back().gradient[k]) * std::pow(10.0, -static_cast<double>(k % 4));
  }
  const auto full = parse_learner("AdamW{peak_learning_rate=1}");
  const auto coded = parse_learner("AdamW8bit{peak_learning_rate=1 min_8bit_size=0}");
  const Doubles start = random_values(count, 1);
  const Updated want = run_updates(learner_of(*full), kShape, start, steps),
                got = run_updates(learner_of(*coded), kShape, start, steps);
  double way = 0, off = 0;
  for (std::size_t i = 0; i < count; ++i) {
    way += std::abs(want.parameter[i] - start[i]);
    off += std::abs(want.parameter[i] - got.parameter[i]);
  }
  EXPECT_GT(way / static_cast<double>(count), 0.1);
  EXPECT_GT(off, 0);
  EXPECT_LT(off, 0.1 * way);
}

TEST(AdamW8bit, KeepsAByteAndSharedScales) {
  layers::ParameterInfo info;
  info.type = {kernels::DType::f32, {64, 100}};
  info.axes = {"mlp", "embed"};
  const auto learner = parse_learner("AdamW8bit{peak_learning_rate=1}");
  for (const trainer::Slot& slot : learner_of(*learner).slots(info))
    EXPECT_EQ(slot.type.bytes(), 25 * 260) << slot.name;
  const auto larger = parse_learner("AdamW8bit{peak_learning_rate=1 min_8bit_size=6401}");
  for (const trainer::Slot& slot : learner_of(*larger).slots(info))
    EXPECT_EQ(slot.type, info.type) << slot.name;
}

TEST(AdamW8bit, RefusesNonsense) {
  EXPECT_EQ(message_of([] {
              learner_of(*parse_learner("AdamW8bit{peak_learning_rate=1 min_8bit_size=-1}")).check();
            }).find("no error"),
            std::string::npos);
}

}  // namespace
}  // namespace meshloom::tests
