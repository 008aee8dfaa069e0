// The lists of moves of collectives, without any transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "hal/error.h"
#include "kernels/core/rng.h"
#include "tests/mesh/ranks.h"
#include "tests/message_of.h"

namespace meshloom::tests {
namespace {

using namespace kernels::collective;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::int64_t> output_bytes(const RandomCollective& made) {
  std::vector<std::int64_t> bytes;
  for (const Bytes& output : made.outputs) bytes.push_back(static_cast<std::int64_t>(output.size()));
  return bytes;
}

TEST(Moves, AreWhatTheHeaderSays) {
  const std::vector<std::int64_t> sizes{3, 0, 5};
  EXPECT_THAT(all_gather(sizes, 0),
              testing::ElementsAre(Move{0, true, kInput, 0, 3}, Move{0, false, kOutput, 0, 3},
                                   Move{1, true, kInput, 0, 3}, Move{2, false, kOutput, 3, 5},
                                   Move{2, true, kInput, 0, 3}));
  EXPECT_THAT(shift(sizes, -1, 2),
              testing::ElementsAre(Move{1, true, kInput, 0, 5}, Move{0, false, kOutput, 0, 3}));
  EXPECT_THAT(shift(sizes, 3, 0),
              testing::ElementsAre(Move{0, true, kInput, 0, 3}, Move{0, false, kOutput, 0, 3}));
  const std::vector<std::int64_t> pairs{1, 2, 3, 4};
  EXPECT_THAT(all_to_all(pairs, 2, 1),
              testing::ElementsAre(Move{1, true, kInput, 3, 4}, Move{1, false, kOutput, 2, 4},
                                   Move{0, true, kInput, 0, 3}, Move{0, false, kOutput, 0, 2}));
}

// Runs of peers stand for the very lists, in their order.
TEST(Moves, InRunsAreTheSame) {
  kernels::Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const int n = static_cast<int>(rng.integer(1, 9));
    std::vector<std::int64_t> list, pairs;
    const std::int64_t most = rng.flip() ? 1 : 4;
    for (int i = 0; i < n; ++i) list.push_back(rng.integer(0, most));
    for (int i = 0; i < n; ++i) pairs.insert(pairs.end(), list.begin(), list.end());
    const Sizes sizes(list);
    EXPECT_EQ(sizes.list(), list);
    EXPECT_EQ(Sizes::from_pairs(sizes.pairs()), sizes);
    EXPECT_EQ(sizes.total(), std::accumulate(list.begin(), list.end(), std::int64_t{0}));
    for (int place = 0; place < n; ++place) {
      EXPECT_EQ(sizes.at(place), list[static_cast<std::size_t>(place)]);
      EXPECT_EQ(expanded(gather_runs(sizes, place), n, place), all_gather(list, place));
      EXPECT_EQ(expanded(scatter_runs(sizes, place), n, place), all_to_all(pairs, n, place));
    }
  }
  EXPECT_EQ(gather_runs(Sizes::equal(32768, 4), 5).size(), 6U) << "before its own place, that, and behind";
  EXPECT_EQ(message_of([] { Sizes::from_pairs({3}); }).substr(0, 32), "sizes of a collective: must be p");
  EXPECT_EQ(message_of([] { gather_runs(Sizes::equal(2, 4), 2); }),
            "all_gather: the place must be in a group of 2; found 2");
}

// Of four runs, which are one byte here, place 0 has the outer and place 1 the inner ones.
TEST(Moves, InZigzagHaveTheirPlaces) {
  for (const int n : {1, 2, 3, 5}) {
    const auto place_of = [&](int run) { return run < n ? run : 2 * n - 1 - run; };
    std::vector<std::vector<Move>> gathers, scatters;
    for (int place = 0; place < n; ++place) {
      gathers.push_back(expanded(gather_runs(Sizes::equal(n, 2), place, Order::zigzag), n, place));
      scatters.push_back(expanded(scatter_runs(Sizes::equal(n, 2), place, Order::zigzag), n, place));
    }
    const std::vector<std::int64_t> all(static_cast<std::size_t>(n), 2L * n);
    EXPECT_EQ(mismatch(gathers, all), "");
    EXPECT_EQ(mismatch(scatters, all), "");
    for (int place = 0; place < n; ++place)
      for (int run = 0; run < 2 * n; ++run) {
        const int owner = place_of(run), half = run < n ? 0 : 1;
        EXPECT_THAT(gathers[static_cast<std::size_t>(place)],
                    testing::Contains(Move{owner, false, kOutput, run, 1}));
        EXPECT_THAT(gathers[static_cast<std::size_t>(owner)],
                    testing::Contains(Move{place, true, kInput, half, 1}));
        EXPECT_THAT(scatters[static_cast<std::size_t>(place)],
                    testing::Contains(Move{owner, true, kInput, run, 1}));
        EXPECT_THAT(scatters[static_cast<std::size_t>(owner)],
                    testing::Contains(Move{place, false, kOutput, 2 * place + half, 1}));
      }
  }
  EXPECT_EQ(message_of([] {
              gather_runs(Sizes({2, 4}), 0, Order::zigzag);
            }),
            "all_gather: places in zigzag must have equal and even sizes; found 2 of place 0, 6 of all 2");
  EXPECT_EQ(message_of([] { scatter_runs(Sizes::equal(2, 3), 0, Order::zigzag); }),
            "all_to_all: places in zigzag must have equal and even sizes; found 3 of place 0, 6 of all 2");
}

TEST(Moves, OfAllPlacesFitTogether) {
  for (int ranks : {1, 2, 3, 5, 8})
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const RandomCollective made = random_collective(seed, ranks, 50);
      EXPECT_EQ(mismatch(made.lists, output_bytes(made)), "") << made.op << " seed " << seed;
    }
}

// Memory alone: what the lists say is what the references say.
TEST(Moves, GiveTheBytesOfTheReferences) {
  for (int ranks : {1, 2, 3, 5})
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const RandomCollective made = random_collective(seed, ranks, 50);
      for (std::size_t to = 0; to < made.lists.size(); ++to) {
        Bytes output(made.outputs[to].size());
        std::vector<std::size_t> next(made.lists.size());  // by the sending place: its next move out to us
        for (const Move& in : made.lists[to]) {
          if (in.out) continue;
          const auto from = static_cast<std::size_t>(in.peer);
          const std::vector<Move>& list = made.lists[from];
          std::size_t& at = next[from];
          while (!list[at].out || list[at].peer != static_cast<int>(to)) ++at;
          const auto begin = made.inputs[from].begin() + list[at++].offset;
          std::copy(begin, begin + in.bytes, output.begin() + in.offset);
        }
        EXPECT_EQ(output, made.outputs[to]) << made.op << " seed " << seed;
      }
    }
}

TEST(Moves, PlantedFaultsAreTold) {
  const std::vector<std::int64_t> sizes{4, 4, 4}, outputs{12, 12, 12};
  const auto lists = [&] {
    return std::vector<std::vector<Move>>{all_gather(sizes, 0), all_gather(sizes, 1), all_gather(sizes, 2)};
  };
  ASSERT_THAT(mismatch(lists(), outputs), IsEmpty());
  auto planted = lists();
  std::erase_if(planted[1], [](const Move& move) { return move.out && move.peer == 2; });
  EXPECT_EQ(mismatch(planted, outputs), "place 1 sends 0 messages to place 2, which receives 1");
  planted = lists();
  for (Move& move : planted[0])
    if (!move.out && move.peer == 2) move.bytes = 3;
  EXPECT_EQ(mismatch(planted, outputs), "message 0 from place 2 to place 0: 4 bytes are sent, 3 received");
  planted = lists();
  for (Move& move : planted[2])
    if (!move.out && move.peer == 1) move.offset = 2;
  EXPECT_EQ(mismatch(planted, outputs), "place 2 receives byte 2 twice");
  planted = lists();
  for (Move& move : planted[2])
    if (!move.out && move.peer == 2) move.offset = 9;
  EXPECT_EQ(mismatch(planted, outputs), "place 2 receives bytes [9, 13) of 12");
}

TEST(Moves, RefuseWhatIsNoGroup) {
  const std::vector<std::int64_t> two{1, 2}, negative{1, -2};
  EXPECT_EQ(message_of([&] { all_gather(two, 2); }),
            "all_gather: the place must be in a group of 2; found 2");
  EXPECT_EQ(message_of([&] { all_to_all(two, 2, 0); }), "all_to_all: must have 4 sizes; found 2");
  EXPECT_EQ(message_of([&] { shift(negative, 1, 0); }), "shift: sizes must not be negative; found -2");
}

}  // namespace
}  // namespace meshloom::tests
