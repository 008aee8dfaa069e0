// Guesses of tokens: what is proposed, and how much.
#include "trainer/inference/speculator.h"

#include <gtest/gtest.h>

#include <random>

#include "trainer/inference/prompt_lookup.h"

namespace meshloom::tests {
namespace {

using Tokens = std::vector<std::int32_t>;
using trainer::DraftLength;
using trainer::prompt_lookup;

TEST(PromptLookup, ProposesWhatFollowedTheLastTokens) {
  const Tokens text{1, 2, 3, 4, 5, 6, 9, 1, 2, 3};
  EXPECT_EQ(prompt_lookup(text, 3), (Tokens{4, 5, 6}));
  EXPECT_EQ(prompt_lookup(text, 1), (Tokens{4}));
  EXPECT_EQ(prompt_lookup(text, 0), Tokens());
}

TEST(PromptLookup, NeedsThreeTokensAlike) {
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 7, 5, 1, 2}, 4), Tokens());
  EXPECT_EQ(prompt_lookup(Tokens{1, 2}, 4), Tokens());
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 3}, 4), Tokens());
  EXPECT_EQ(prompt_lookup(Tokens{}, 4), Tokens());
}

TEST(PromptLookup, TakesTheLongestMatchAndOfThoseTheLatest) {
  EXPECT_EQ(prompt_lookup(Tokens{0, 1, 2, 3, 8, 1, 2, 3, 7, 0, 1, 2, 3}, 1), (Tokens{8}));
  EXPECT_EQ(prompt_lookup(Tokens{5, 1, 2, 3, 8, 6, 1, 2, 3, 7, 4, 1, 2, 3}, 1), (Tokens{7}));
}

TEST(PromptLookup, GoesOnWithTextThatRepeatsItself) {
  EXPECT_EQ(prompt_lookup(Tokens{9, 4, 4, 4, 4}, 5), (Tokens{4, 4, 4, 4, 4}));
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
}

// Against a search that is as simple as can be.
TEST(PromptLookup, OfRandomText) {
  std::mt19937_64 random(1);
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    Tokens text(random() % 40);
    for (auto& token : text) token = static_cast<std::int32_t>(random() % 3);
    const auto size = text.size();
    Tokens longer;
    std::size_t best = 0;
    for (std::size_t end = 3; end < size; ++end) {
      std::size_t match = 0;
      while (match < end && match < 16 && text[end - 1 - match] == text[size - 1 - match]) ++match;
      if (match < 3 || match < best) continue;
      best = match;
      longer = text;
      for (std::size_t k = 0; k < 6; ++k) longer.push_back(longer[end + k]);
    }
    found += best > 0;
    EXPECT_EQ(prompt_lookup(text, 6), best > 0 ? Tokens(longer.end() - 6, longer.end()) : Tokens());
  }
  EXPECT_GT(found, 500);
}

TEST(PromptLookup, SharesABudget) {
  const Tokens text{4, 4, 4, 4, 4};
  trainer::PromptLookup lookup;
  const trainer::DraftRequest request{.id = 1, .tokens = text, .prompt = 5, .most = 3};
  const std::vector<trainer::DraftRequest> requests(3, request);
  const auto proposed = lookup.propose(requests, 4);
  ASSERT_EQ(proposed.size(), 3u);
  EXPECT_EQ(proposed[0].size(), 3u);
  EXPECT_EQ(proposed[1].size(), 1u);
  EXPECT_EQ(proposed[2].size(), 0u);
}

TEST(DraftLength, FollowsWhatWasRight) {
  DraftLength length;
  EXPECT_EQ(length.next(7), 7);
  length.verified(7, 2);
  EXPECT_EQ(length.next(7), 3);
  length.verified(3, 3);
  EXPECT_EQ(length.next(7), 6);
  EXPECT_EQ(length.next(4), 4);  // no more than there is room for
  length.verified(0, 0);         // nothing was computed
  EXPECT_EQ(length.next(7), 6);
}

TEST(DraftLength, PausesLongerAndLonger) {
  DraftLength length;
  int asked = 0;
  for (int token = 0; token < 1000; ++token)
    if (length.next(7) > 0) {
      ++asked;
      length.verified(1, 0);
    }
  EXPECT_GT(asked, 30);
  EXPECT_LT(asked, 40);
  while (length.next(7) == 0) {
  }
  length.verified(1, 1);
  EXPECT_EQ(length.next(7), 2);  // no pause
}

}  // namespace
}  // namespace meshloom::tests
