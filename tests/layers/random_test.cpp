// Keys, counters and initialisers.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "layers/core/initializer.h"
#include "layers/core/random.h"

namespace meshloom::layers {
namespace {

// Known answers of Philox4x32-10, from the authors' distribution.
TEST(Random, PhiloxKnownAnswers) {
  const std::array<std::uint32_t, 4> zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const std::array<std::uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  const std::array<std::uint32_t, 4> pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  EXPECT_EQ(philox({0}, 0, 0), zeros);
  EXPECT_EQ(philox({~0ull}, ~0ull, ~0ull), ones);
  EXPECT_EQ(philox({0x299f31d0a4093822ull}, 0x85a308d3243f6a88ull, 0x0370734413198a2eull), pi);
}

TEST(Random, KeysFoldAlongPaths) {
  const Key root{7};
  EXPECT_EQ(fold_in_path(root, ""), root);
  EXPECT_EQ(fold_in_path(root, "a/bc/d"), fold_in(fold_in(fold_in(root, "a"), "bc"), "d"));
  std::set<std::uint64_t> seen;
  for (const char* path : {"a", "b", "a/b", "b/a", "ab", "a/a", "a/b/c", "layer1", "layer10", "layer1/0"})
    seen.insert(fold_in_path(root, path).value);
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_NE(fold_in({1}, "a"), fold_in({2}, "a"));
}

TEST(Random, NormalElementsDependOnTheirIndexOnly) {
  std::vector<float> all(101), part(30);
  normal({3}, 0, 101, all.data());
  normal({3}, 7, 30, part.data());
  for (int i = 0; i < 30; ++i) EXPECT_EQ(part[i], all[i + 7]);
}

// The same transform by the library's functions in double.
TEST(Random, NormalIsBoxAndMuller) {
  constexpr std::uint64_t kBegin = (1ull << 34) + 3;
  std::vector<float> got(10000);
  normal({77}, kBegin, 10000, got.data());
  const double turn = 2 * std::acos(-1.0);
  for (std::uint64_t i = 0; i < got.size(); ++i) {
    const std::uint64_t at = kBegin + i;
    const auto bits = philox({77}, at / 4);
    const std::size_t pair = at % 4 / 2 * 2;
    const double radius = std::sqrt(-2 * std::log(std::max(bits[pair], 1u) * 0x1p-32));
    const double angle = turn * bits[pair + 1] * 0x1p-32;
    const double want = radius * (at % 2 ? std::sin(angle) : std::cos(angle));
    EXPECT_NEAR(got[i], want, 4e-6) << at;
  }
}

struct Moments {
  double mean = 0, variance = 0, largest = 0;
};
Moments moments(const Initializer& init, const InitArgs& args) {
  std::vector<float> values(static_cast<std::size_t>(kernels::elements(args.shape)));
  init.fill(args, values.data());
  Moments m;
  for (const float v : values) m.mean += v;
  m.mean /= static_cast<double>(values.size());
  for (const float v : values) {
    m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
    m.largest = std::max(m.largest, std::abs(static_cast<double>(v)));
  }
  return m;
}

// A sample of n has its mean within 4 sigma / sqrt(n) and its variance within 4 sqrt(2 / n) of sigma^2 but
// one time in 16,000; the key is fixed, so these pass always or never.
void expect_normal(const Initializer& init, const InitArgs& args, double std) {
  const Moments m = moments(init, args);
  const auto n = static_cast<double>(kernels::elements(args.shape));
  EXPECT_NEAR(m.mean, 0, 4 * std / std::sqrt(n));
  EXPECT_NEAR(m.variance, std * std, 4 * std * std * std::sqrt(2 / n));
  EXPECT_GT(m.largest, 3 * std);
}

TEST(Initializer, Distributions) {
  const InitArgs args{{11}, {64, 257}, 8};
  Normal normal;
  normal.std = 0.5;
  expect_normal(normal, args, 0.5);
  DepthScaledNormal scaled;
  scaled.std = 0.5;
  expect_normal(scaled, args, 0.125);
  FanInNormal fan;
  fan.gain = 2;
  expect_normal(fan, args, 2 / std::sqrt(257.0));
  EXPECT_EQ(moments(Constant{1}, args).mean, 1);
  EXPECT_EQ(moments(Constant{1}, args).variance, 0);
}

TEST(Initializer, TruncatedNormalStaysInside) {
  TruncatedNormal init;
  init.std = 0.5;
  const Moments m = moments(init, {{11}, {64, 257}, 1});
  EXPECT_LE(m.largest, 1.0);
  EXPECT_GT(m.largest, 0.99);
  EXPECT_NEAR(m.mean, 0, 0.02);
  EXPECT_NEAR(m.variance, 0.25 * 0.7737, 0.01);  // of a normal cut at 2 sigma
  init.cut = 0;
  EXPECT_THROW(moments(init, {{11}, {4}, 1}), Error);
}

TEST(Initializer, RangesAreTheWhole) {
  const InitArgs args{{5}, {37, 27}, 3};
  const auto check = [&](const Initializer& init) {
    std::vector<float> whole(999), parts(999);
    init.fill(args, whole.data());
    for (const std::int64_t step : {1, 3, 64, 257, 998}) {
      for (std::int64_t begin = 0; begin < 999; begin += step)
        init.fill_range(args, begin, std::min<std::int64_t>(step, 999 - begin), parts.data() + begin);
      EXPECT_EQ(parts, whole) << init.class_name() << " in steps of " << step;
    }
  };
  check(Constant{2});
  check(Normal{});
  check(DepthScaledNormal{});
  check(FanInNormal{});
  check(TruncatedNormal{});
}

TEST(Initializer, TheSameBitsEveryTime) {
  std::vector<float> a(999), b(999);
  Normal{}.fill({{5}, {999}, 1}, a.data());
  Normal{}.fill({{5}, {999}, 1}, b.data());
  EXPECT_EQ(a, b);
  Normal{}.fill({{6}, {999}, 1}, b.data());
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace meshloom::layers
