// Sampling tokens: which may be sampled, and how often.
#include "trainer/inference/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "hal/error.h"
#include "kernels/core/rng.h"

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

// The same by sorting everything and following the definitions one after another.
std::int32_t plainly_sampled(const std::vector<float>& logits, const SamplerOptions& options,
                             std::int64_t position, const TokensSoFar& so_far) {
  std::map<std::int32_t, double> scores;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) scores[static_cast<std::int32_t>(i)] = logits[i];
  for (const auto& [id, bias] : options.logit_bias)
    if (scores.count(id)) scores[id] += bias;
  std::set<std::int32_t> seen(so_far.prompt.begin(), so_far.prompt.end());
  seen.insert(so_far.generated.begin(), so_far.generated.end());
  for (auto& [id, score] : scores) {
    if (seen.count(id))
      score = score > 0 ? score / options.repetition_penalty : score * options.repetition_penalty;
    const auto times = std::count(so_far.generated.begin(), so_far.generated.end(), id);
    if (times > 0) score -= options.presence_penalty + options.frequency_penalty * static_cast<double>(times);
  }
  std::vector<std::pair<double, std::int32_t>> order;  // (-score, id)
  for (const auto& [id, score] : scores) order.emplace_back(-score, id);
  std::sort(order.begin(), order.end());
  if (options.temperature == 0) return order[0].second;
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> weights;
  for (const auto& [negative, id] : order)
    weights.push_back(std::exp((order[0].first - negative) / options.temperature));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t count = 0;
  for (double kept = 0; count < weights.size() && (options.top_p == 1 || kept < options.top_p * sum); ++count)
    kept += weights[count];
  weights.resize(std::max<std::size_t>(count, 1));
  while (weights.size() > 1 && weights.back() < options.min_p * weights[0]) weights.pop_back();
  const double u =
      static_cast<double>(kernels::mix(options.seed, static_cast<std::uint64_t>(position)) >> 11) * 0x1p-53 *
      std::accumulate(weights.begin(), weights.end(), 0.0);
  double at = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if ((at += weights[i]) > u) return order[i].second;
  return order[weights.size() - 1].second;
}

TEST(Sampler, DrawsWhatTheDefinitionDraws) {
  std::mt19937 random(3);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto sometimes = [&](auto value, auto other) { return random() % 2 == 0 ? value : other; };
  const auto tokens = [&](std::size_t most, std::size_t vocabulary) {
    std::vector<std::int32_t> ids(random() % most);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % vocabulary);
    return ids;
  };
  std::set<std::int32_t> drawn;
  int differs = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> logits(sometimes(1 + random() % 40, 1 + random() % 1500));
    const bool coarse = random() % 3 == 0;  // with ties
    for (float& logit : logits) {
      logit = static_cast<float>(uniform(-6, 6));
      if (coarse) logit = std::round(logit);
      if (random() % 50 == 0 && &logit != &logits[0]) logit = sometimes(-kInfinity, std::nanf(""));
    }
    SamplerOptions options{.temperature = sometimes(0.0, uniform(0.1, 3)),
                           .top_k = sometimes(0, static_cast<int>(random() % 100)),
                           .top_p = sometimes(1.0, uniform(0.01, 1)),
                           .min_p = sometimes(0.0, uniform(0, 0.5)),
                           .repetition_penalty = sometimes(1.0, uniform(0.5, 2)),
                           .presence_penalty = sometimes(0.0, uniform(-2, 2)),
                           .frequency_penalty = sometimes(0.0, uniform(-2, 2)),
                           .seed = random()};
    if (random() % 2 == 0)
      for (const std::int32_t id : tokens(8, logits.size()))
        options.logit_bias.emplace_back(id, uniform(-9, 9));
    const std::vector<std::int32_t> prompt = tokens(60, logits.size()), generated = tokens(60, logits.size());
    const TokensSoFar so_far{prompt, generated};
    check(options);
    const std::int32_t token = sample_token(logits, options, i, so_far);
    ASSERT_EQ(token, plainly_sampled(logits, options, i, so_far)) << i;
    drawn.insert(token);
    differs += token != sample_token(logits, options, i);
  }
  EXPECT_GT(drawn.size(), 200u);
  EXPECT_GT(differs, 500);  // what stands in the text matters
}

TEST(Sampler, MinPKeepsThoseOfAShareOfTheLargest) {
  // 0.5, 0.25, 0.125, 0.125
  const std::vector<float> logits{std::log(0.125f), std::log(0.5f), std::log(0.125f), std::log(0.25f)};
  EXPECT_EQ(picked(logits, {.temperature = 1, .min_p = 1}), (Ids{1}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .min_p = 0.51}), (Ids{1}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .min_p = 0.49}), (Ids{1, 3}));
  EXPECT_EQ(picked(logits, {.temperature = 1, .min_p = 0.24}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(picked(logits, {.temperature = 2, .min_p = 0.6}), (Ids{1, 3}));  // after the temperature
}

TEST(Sampler, PenaltiesLookAtTheTextSoFar) {
  const std::vector<float> logits{2, 1.5f, -1, -1.5f};
  const std::vector<std::int32_t> zero{0}, twice{0, 0}, none{}, outside{-1, 4, 99};
  const auto best = [&](SamplerOptions options, const TokensSoFar& so_far) {
    options.temperature = 0;
    return sample_token(logits, options, 0, so_far);
  };
  EXPECT_EQ(best({.repetition_penalty = 1.4}, {none, none}), 0);
  EXPECT_EQ(best({.repetition_penalty = 1.4}, {zero, none}), 1);
  EXPECT_EQ(best({.repetition_penalty = 1.4}, {none, zero}), 1);
  EXPECT_EQ(best({.repetition_penalty = 1.3}, {none, twice}), 0);  // once, whatever the number
  EXPECT_EQ(best({.presence_penalty = 0.6}, {zero, none}), 0);     // not of the prompt
  EXPECT_EQ(best({.presence_penalty = 0.6}, {none, zero}), 1);
  EXPECT_EQ(best({.presence_penalty = 0.3}, {none, twice}), 0);
  EXPECT_EQ(best({.frequency_penalty = 0.3}, {none, zero}), 0);
  EXPECT_EQ(best({.frequency_penalty = 0.3}, {none, twice}), 1);
  EXPECT_EQ(best({.repetition_penalty = 2, .presence_penalty = 2}, {outside, outside}), 0);
  EXPECT_EQ(best({.logit_bias = {{3, 4}}}, {}), 3);
  EXPECT_EQ(best({.logit_bias = {{3, 2}, {3, 2}}}, {}), 3);
  EXPECT_EQ(best({.logit_bias = {{0, -100}, {9, 100}}}, {}), 1);
  // A negative logit is multiplied.
  EXPECT_EQ(sample_token(std::vector<float>{-1, -1.5f}, {.temperature = 0, .repetition_penalty = 2}, 0,
                         {zero, none}),
            1);
}

TEST(Sampler, DrawsTokensThatAreAllowedAsIfTheOthersHadNoLogits) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(100 + random() % 100);
    for (float& each : logits) each = random() % 10 ? normal(random) : -kInfinity;
    std::vector<std::uint64_t> allowed(2);  // ids from 128 on are not
    for (std::uint64_t& word : allowed)
      word = (std::uint64_t{random()} << 32 | random()) & (std::uint64_t{random()} << 32 | random());
    std::vector<float> masked = logits;
    for (std::size_t id = 0; id < masked.size(); ++id)
      if (id >= 128 || (allowed[id / 64] >> (id % 64) & 1) == 0) masked[id] = -kInfinity;
    const std::vector<std::int32_t> prompt{1, 5, 64}, generated{5, 5, 7};
    SamplerOptions options{.temperature = round % 4 ? 0.7 : 0,
                           .top_k = round % 3 ? 0 : 7,
                           .top_p = round % 5 ? 1 : 0.6,
                           .seed = 4};
    if (round % 2) {
      options.repetition_penalty = 1.5;
      options.presence_penalty = 1;
      options.logit_bias = {{5, 3.0}, {130, 50.0}};
    }
    for (int position = 0; position < 20; ++position) {
      const std::int32_t id = sample_token(logits, options, position, {prompt, generated}, allowed);
      EXPECT_EQ(id, sample_token(masked, options, position, {prompt, generated}));
    }
  }
  const std::vector<float> logits{1, 2, -kInfinity};
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0, {}, std::vector<std::uint64_t>{1}), 0);
  EXPECT_THROW(sample_token(logits, {.temperature = 0}, 0, {}, std::vector<std::uint64_t>{4}), Error);
  EXPECT_THROW(sample_token(logits, {.temperature = 0}, 0, {}, std::vector<std::uint64_t>{8}), Error);
}

TEST(Sampler, ChecksItsOptions) {
  const double nan = std::nan("");
  EXPECT_NO_THROW(check({}));
  EXPECT_NO_THROW(check({.top_p = 1e-9, .min_p = 1, .presence_penalty = -2, .frequency_penalty = 2}));
  for (const SamplerOptions& options : {SamplerOptions{.temperature = -1},
                                        SamplerOptions{.temperature = nan},
                                        SamplerOptions{.temperature = double{kInfinity}},
                                        SamplerOptions{.top_k = -1},
                                        SamplerOptions{.top_p = 0},
                                        SamplerOptions{.top_p = 1.1},
                                        SamplerOptions{.top_p = nan},
                                        SamplerOptions{.min_p = -0.1},
                                        SamplerOptions{.min_p = 1.1},
                                        SamplerOptions{.min_p = nan},
                                        SamplerOptions{.repetition_penalty = 0},
                                        SamplerOptions{.repetition_penalty = nan},
                                        SamplerOptions{.repetition_penalty = double{kInfinity}},
                                        SamplerOptions{.presence_penalty = 2.1},
                                        SamplerOptions{.presence_penalty = nan},
                                        SamplerOptions{.frequency_penalty = -2.1},
                                        SamplerOptions{.frequency_penalty = nan},
                                        SamplerOptions{.logit_bias = {{-1, 0.0}}},
                                        SamplerOptions{.logit_bias = {{0, nan}}},
                                        SamplerOptions{.logit_bias = {{0, double{kInfinity}}}}})
    EXPECT_THROW(check(options), Error);
}

}  // namespace
}  // namespace meshloom::trainer
