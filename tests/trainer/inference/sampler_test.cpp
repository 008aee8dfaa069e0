// Sampling tokens: which may be sampled, and how often.
#include "trainer/inference/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

using Ids = std::set<std::int32_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Ids picked(const std::vector<float>& logits, const SamplerOptions& options, int draws = 4000) {
  Ids ids;
  for (int i = 0; i < draws; ++i) ids.insert(sample_token(logits, options, i));
  return ids;
}

// What each token's probability must be: softmax of logits / temperature, of the top_k largest (ties: the
// lower ids), of these the fewest whose sum reaches top_p, made to sum up to 1.
std::vector<double> probabilities(const std::vector<float>& logits, const SamplerOptions& options) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> result(logits.size(), 0.0);
  double sum = 0;
  for (const std::size_t id : order)
    sum += result[id] = std::exp((logits[id] - logits[order[0]]) / options.temperature);
  double kept = 0;
  for (const std::size_t id : order) {
    if (kept >= options.top_p * sum) result[id] = 0;
    kept += result[id];
  }
  for (double& each : result) each /= kept;
  return result;
}

constexpr double kMinKept = 20;  // what a cell of the test of fit expects at least

// Pearson's statistic in standard deviations above its mean: about normal where the counts are large. What is
// expected less than kMinKept times is one cell together.
double chi_square_excess(const std::vector<double>& counts, const std::vector<double>& expected) {
  double sum = 0, rare = 0, rare_expected = 0;
  int cells = 0;
  const auto add = [&](double count, double want) {
    sum += (count - want) * (count - want) / want;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] >= kMinKept) {
      add(counts[i], expected[i]);
    } else {
      rare += counts[i];
      rare_expected += expected[i];
    }
  }
  if (rare_expected >= 1) add(rare, rare_expected);
  return (sum - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

constexpr int kDraws = 100'000;
constexpr double kMaxExcess =
    4;  // one right sampler in 30,000 exceeds it; the draws are the same in every run

std::vector<double> counts(const std::vector<float>& logits, const SamplerOptions& options) {
  std::vector<double> result(logits.size(), 0.0);
  for (int i = 0; i < kDraws; ++i) ++result[static_cast<std::size_t>(sample_token(logits, options, i))];
  return result;
}
double excess(const std::vector<float>& logits, const SamplerOptions& options,
              const SamplerOptions& believed) {
  std::vector<double> expected = probabilities(logits, believed);
  for (double& each : expected) each *= kDraws;
  return chi_square_excess(counts(logits, options), expected);
}

std::vector<float> some_logits(int count) {
  std::vector<float> logits;
  for (int i = 0; i < count; ++i)
    logits.push_back(static_cast<float>(i * 7 % count) * 3.0f / static_cast<float>(count));
  return logits;
}

TEST(Sampler, AtTemperatureZeroTheLargestAndOfTiesTheLowest) {
  const SamplerOptions greedy{.temperature = 0};
  EXPECT_EQ(picked({0, 3, 1, 3, 3}, greedy), Ids{1});
  EXPECT_EQ(picked({-5, -5, -5}, greedy), Ids{0});
  EXPECT_EQ(picked({std::nanf(""), -9, kInfinity, -8, -kInfinity}, greedy), Ids{3});
  EXPECT_EQ(picked({1, 2, 3}, {.temperature = 0, .top_k = 2, .top_p = 0.1}), Ids{2});
  EXPECT_THROW(sample_token(std::vector<float>{std::nanf(""), kInfinity}, greedy, 0), Error);
}

TEST(Sampler, TopKKeepsTheLargestAndOfTiesTheLowest) {
  const std::vector<float> logits{0.5f, 2, 1, 2, 1, 1, -kInfinity, 0};
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_k = 1}), (Ids{1}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_k = 2}), (Ids{1, 3}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_k = 4}), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_k = 100}), (Ids{0, 1, 2, 3, 4, 5, 7}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_k = 0}), (Ids{0, 1, 2, 3, 4, 5, 7}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // 0.5, 0.25, 0.125, 0.125
  const std::vector<float> logits{std::log(0.125f), std::log(0.5f), std::log(0.125f), std::log(0.25f)};
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_p = 1e-9}), (Ids{1}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_p = 0.49}), (Ids{1}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_p = 0.51}), (Ids{1, 3}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_p = 0.74}), (Ids{1, 3}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_p = 0.76}), (Ids{0, 1, 3}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_p = 1}), (Ids{0, 1, 2, 3}));
  // Of what top_k leaves: 2/3 and 1/3.
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6}), (Ids{1}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .top_k = 2, .top_p = 0.7}), (Ids{1, 3}));
}

TEST(Sampler, LargeLogitsDoNotOverflow) {
  EXPECT_EQ(picked({-3e38f, 3e38f, 0}, {.temperature = 1e-3}), (Ids{1}));
  EXPECT_EQ(picked({3e38f, 3e38f, 0}, {.temperature = 1}), (Ids{0, 1}));
}

TEST(Sampler, DrawsAsOftenAsTheProbabilitiesSay) {
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 1}, SamplerOptions{.temperature = 0.3, .seed = 1},
        SamplerOptions{.temperature = 2.5, .seed = 2},
        SamplerOptions{.temperature = 1, .top_k = 5, .seed = 3},
        SamplerOptions{.temperature = 0.7, .top_p = 0.8, .seed = 4},
        SamplerOptions{.temperature = 1.5, .top_k = 20, .top_p = 0.6, .seed = ~std::uint64_t{0}}})
    for (const int tokens : {2, 37}) {
      const std::vector<float> logits = some_logits(tokens);
      const std::vector<double> seen = counts(logits, options), wanted = probabilities(logits, options);
      for (std::size_t i = 0; i < seen.size(); ++i)
        if (wanted[i] == 0 || wanted[i] * kDraws >= kMinKept) {
          EXPECT_EQ(seen[i] > 0, wanted[i] > 0) << "token " << i << " at seed " << options.seed;
        }
      if (std::count_if(wanted.begin(), wanted.end(), [](double p) { return p > 0; }) > 1) {
        EXPECT_LT(excess(logits, options, options), kMaxExcess) << tokens << " tokens, seed " << options.seed;
      }
    }
}

// What is a little wrong is found.
TEST(Sampler, TheTestOfFitSeesATemperatureThatIsSlightlyOff) {
  const std::vector<float> logits = some_logits(37);
  EXPECT_GT(excess(logits, {.temperature = 1}, {.temperature = 1.03}), kMaxExcess);
  EXPECT_GT(excess(logits, {.temperature = 1, .top_k = 20}, {.temperature = 0.94, .top_k = 20}), kMaxExcess);
}

TEST(Sampler, ADrawDependsOnSeedAndPositionAlone) {
  const std::vector<float> logits = some_logits(37);
  std::vector<std::int32_t> forward, backward;
  for (int i = 0; i < 1000; ++i) forward.push_back(sample_token(logits, {.temperature = 1, .seed = 9}, i));
  for (int i = 1000; i-- > 0;) {
    sample_token(logits, {.temperature = 1, .seed = 10}, i);  // another text in between
    backward.push_back(sample_token(logits, {.temperature = 1, .seed = 9}, i));
  }
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
}

// Two samples that would show a correlation: at adjacent positions, and with adjacent seeds.
TEST(Sampler, DrawsAreIndependent) {
  constexpr int kTokens = 8;
  const std::vector<float> logits(kTokens, 0.0f);
  const auto token = [&](std::uint64_t seed, int position) {
    return static_cast<std::size_t>(sample_token(logits, {.temperature = 1, .seed = seed}, position));
  };
  const std::vector<double> expected(kTokens * kTokens, double{kDraws} / (kTokens * kTokens));
  std::vector<double> positions(expected.size(), 0.0), seeds(expected.size(), 0.0),
      diagonal(expected.size(), 0.0);
  for (int i = 0; i < kDraws; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    ++positions[token(7, i) * kTokens + token(7, i + 1)];
    ++seeds[token(seed, 3) * kTokens + token(seed + 1, 3)];
    ++diagonal[token(seed, 3) * kTokens + token(seed + 1, 4)];
  }
  EXPECT_LT(chi_square_excess(positions, expected), kMaxExcess);
  EXPECT_LT(chi_square_excess(seeds, expected), kMaxExcess);
  EXPECT_LT(chi_square_excess(diagonal, expected), kMaxExcess);
}

}  // namespace
}  // namespace meshloom::trainer
