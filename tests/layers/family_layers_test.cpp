// Layers of single families of models, against plain loops: JointNormProjection (OLMo 2), ScaledHead (Granite), LongRotaryPosition
// (Phi-3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/config/tree.h"
#include "layers/position/long_rope.h"
#include "tests/layers/run_layer.h"
#include "tests/message_of.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

// y = W x
Numbers product(const Numbers& x, const Numbers& weight) {
  Numbers y;
  for (std::size_t row = 0; row < x.size() / kDim; ++row)
    for (std::size_t o = 0; o < kDim; ++o) {
      double sum = 0;
      for (std::size_t i = 0; i < kDim; ++i) sum += double{weight[o * kDim + i]} * x[row * kDim + i];
      y.push_back(static_cast<float>(sum));
    }
  return y;
}

TEST(JointNormProjection, NormalizesAllFeaturesTogether) {
  const Numbers x = layer_input(), weight = random_numbers("w", kDim * kDim, 1),
                scale = random_numbers("s", kDim, 1);
  const LayerResult got = run_layer("JointNormProjection{norm=RMSNorm{eps=0.25}}", x,
                                    {{"projection/weight", weight}, {"norm/weight", scale}});
  Numbers want = product(x, weight);
  for (std::size_t row = 0; row < want.size() / kDim; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < kDim; ++i) squares += double{want[row * kDim + i]} * want[row * kDim + i];
    for (std::size_t i = 0; i < kDim; ++i)
      want[row * kDim + i] *= static_cast<float>(scale[i] / std::sqrt(squares / kDim + 0.25));
  }
  expect_near(got.y, want);
}

TEST(ScaledHead, DividesWhatItsLayerSays) {
  const Numbers x = layer_input(), weight = random_numbers("w", kDim * kDim, 1);
  const LayerResult got = run_layer("ScaledHead{base=Linear{} divisor=8}", x, {{"weight", weight}});
  Numbers want = product(x, weight);
  for (float& value : want) value /= 8;
  expect_near(got.y, want);
  EXPECT_THAT(message_of([&] { run_layer("ScaledHead{base=Linear{} divisor=0}", x); }), HasSubstr("divisor"));
}

// The options of a layer whose heads have 8 features.
kernels::RopeOptions options_of(const std::string& fields) {
  const auto config =
      layers::parse("LongRotaryPosition{original_length=16 " + fields + "}", layer_classes(), "p");
  kernels::RopeOptions options;
  options.dims = 8;
  dynamic_cast<layers::LongRotaryPosition&>(*config).adjust(options, "positions");
  return options;
}

TEST(LongRotaryPosition, TakesTheFactorsOfShortOrOfLongTexts) {
  const std::string fields = R"(short_factors="1 1 1.25 2" long_factors="1 2 4.5 16" attention_factor=1.25)";
  EXPECT_EQ(options_of(fields).factors, (std::vector<double>{1, 1, 1.25, 2}));
  EXPECT_EQ(options_of(fields).magnitude, 1.25);
  EXPECT_EQ(options_of(fields + " long_texts=true").factors, (std::vector<double>{1, 2, 4.5, 16}));
}

TEST(LongRotaryPosition, LimitsSequencesToThoseOfItsFactors) {
  const auto limit = [&](const std::string& fields) {
    const auto config = layers::parse(
        "LongRotaryPosition{original_length=16 short_factors=\"1 2\" " + fields + "}", layer_classes(), "p");
    return dynamic_cast<layers::LongRotaryPosition&>(*config).max_sequence();
  };
  EXPECT_EQ(limit("long_factors=\"1 4\""), 16);
  EXPECT_EQ(limit("long_factors=\"1 4\" long_texts=true"), 0);
  EXPECT_EQ(limit("long_factors=\"1 2\""), 0);  // one and the same
}

TEST(LongRotaryPosition, RefusesOtherFactors) {
  const auto message = [&](const std::string& in_short, const std::string& in_long) {
    return message_of(
        [&] { options_of("short_factors=\"" + in_short + "\" long_factors=\"" + in_long + "\""); });
  };
  EXPECT_THAT(message("1 1 1", "1 1 1 1"),
              HasSubstr("short_factors: must have one number for each of 4 pairs"));
  EXPECT_THAT(message("1 1 1 1", "1 1 1 0"), HasSubstr("long_factors: must be numbers above 0"));
  EXPECT_THAT(message("1,1,1,1", "1 1 1 1"), HasSubstr("short_factors: must be numbers with a space"));
}

}  // namespace
}  // namespace meshloom::tests
