// Rows dealt by speed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/message_of.h"
#include "trainer/mesh/shares.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using trainer::deal_rows;
using trainer::RankSpeed;

std::vector<std::int64_t> dealt(std::int64_t rows, const std::vector<RankSpeed>& ranks) {
  return deal_rows(rows, ranks);
}

TEST(Shares, FollowTheSpeed) {
  EXPECT_THAT(dealt(9, {{1}, {1}, {1}}), ElementsAre(3, 3, 3));
  EXPECT_THAT(dealt(8, {{1}, {1}, {1}}), ElementsAre(3, 3, 2));  // of equal remainders the first
  EXPECT_THAT(dealt(9, {{0.2}, {1 / 3.0}, {1}}), ElementsAre(5, 3, 1));
  EXPECT_THAT(dealt(7, {{1}, {3}}), ElementsAre(5, 2));
  EXPECT_THAT(dealt(4, {{1}, {1000}}), ElementsAre(3, 1));  // nobody is idle
  EXPECT_THAT(dealt(3, {{1}, {1e-9}, {5}}), ElementsAre(1, 1, 1));
  EXPECT_THAT(dealt(1, {{2}}), ElementsAre(1));
}

TEST(Shares, StayWithinMemory) {
  EXPECT_THAT(dealt(9, {{1, 2}, {1}, {1}}), ElementsAre(2, 4, 3));
  EXPECT_THAT(dealt(9, {{0.01, 5}, {1, 2}, {1, 2}}), ElementsAre(5, 2, 2));
  EXPECT_THAT(dealt(10, {{1, 1}, {2, 1}, {4}}), ElementsAre(1, 1, 8));
  EXPECT_THAT(dealt(6, {{0.1, 3}, {1}, {100}}), ElementsAre(3, 2, 1));
}

// Against what dealing must give: all rows, between one and the most, and no row that would be done earlier elsewhere by more
// than one row's time.
TEST(Shares, AreBalancedForAnySpeeds) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    std::vector<RankSpeed> ranks(1 + random() % 6);
    std::int64_t room = 0;
    for (RankSpeed& rank : ranks) {
      rank.seconds = 0.1 + static_cast<double>(random() % 1000) / 100;
      rank.max_rows = 1 + static_cast<std::int64_t>(random() % 12);
      room += rank.max_rows;
    }
    const auto least = static_cast<std::int64_t>(ranks.size());
    const std::int64_t rows = least + static_cast<std::int64_t>(random()) % (room - least + 1);
    const std::vector<std::int64_t> shares = dealt(rows, ranks);
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), rows);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ASSERT_GE(shares[i], 1);
      ASSERT_LE(shares[i], ranks[i].max_rows);
      for (std::size_t j = 0; j < ranks.size(); ++j) {
        if (shares[i] == 1 || shares[j] == ranks[j].max_rows) continue;
        ASSERT_LE(static_cast<double>(shares[i] - 1) * ranks[i].seconds,
                  static_cast<double>(shares[j] + 1) * ranks[j].seconds * (1 + 1e-9));
      }
    }
  }
}

TEST(Shares, BadOnesAreRefused) {
  const auto said = [](std::int64_t rows, const std::vector<RankSpeed>& ranks) {
    return message_of([&] { dealt(rows, ranks); });
  };
  EXPECT_THAT(said(2, {{1}, {1}, {1}}), HasSubstr("3 ranks need at least a row each; found 2"));
  EXPECT_THAT(said(5, {{1, 2}, {1, 2}}), HasSubstr("must have room for 5 rows; found 4"));
  EXPECT_THAT(said(5, {{1}, {0}}), HasSubstr("a row of rank 1 must take a time above 0"));
  const auto checked = [](const std::vector<std::int64_t>& shares) {
    return message_of([&] { trainer::check_shares(shares, 3, 9, "mesh.shares"); });
  };
  EXPECT_EQ(checked({5, 3, 1}), "no error");
  EXPECT_EQ(checked({5, 3}), "mesh.shares: must have the rows of each of 3 ranks; found [5, 3]");
  EXPECT_EQ(checked({5, 3, 2}), "mesh.shares: must sum to the 9 rows of a micro-batch; found [5, 3, 2]");
  EXPECT_EQ(checked({5, 3, 0}), "mesh.shares: every rank must have at least one row; found [5, 3, 0]");
  EXPECT_THAT(checked({INT64_MAX, INT64_MAX, INT64_MAX}), HasSubstr("must sum to the 9 rows"));
}

}  // namespace
}  // namespace meshloom::tests
