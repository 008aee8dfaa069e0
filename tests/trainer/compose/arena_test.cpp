#include "trainer/compose/memory/arena.h"

#include <gtest/gtest.h>

#include <random>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

std::vector<Lifetime> random_lifetimes(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const int calls = 1 + static_cast<int>(random() % 60);
  std::vector<Lifetime> lifetimes(1 + random() % 120);
  for (Lifetime& life : lifetimes) {
    life.first = static_cast<int>(random() % static_cast<std::uint64_t>(calls));
    const auto length = random() % (random() % 4 ? 5 : static_cast<std::uint64_t>(calls));
    life.last = std::min(calls, life.first + static_cast<int>(length));
    life.bytes = 1 + static_cast<std::int64_t>(random() % (random() % 3 ? 700 : 20000));
  }
  return lifetimes;
}

TEST(Arena, NothingAliveOverlaps) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::vector<Lifetime> lifetimes = random_lifetimes(seed);
    const ArenaLayout layout = plan_arena(lifetimes, 256, seed % 2 ? std::int64_t{1} << 40 : 24 << 10);
    ASSERT_NO_THROW(check_arena(lifetimes, layout)) << "seed " << seed;
    for (const Placement& place : layout.places) ASSERT_EQ(place.offset % 256, 0);
    for (std::int64_t bytes : layout.block_bytes) {
      ASSERT_EQ(bytes % 256, 0);
      if (seed % 2 == 0) {
        ASSERT_LE(bytes, 24 << 10);
      }
    }
    ASSERT_GE(layout.total(), min_bytes(lifetimes, 256));
  }
}

TEST(Arena, WastesLittle) {
  std::int64_t used = 0, bound = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<Lifetime> lifetimes = random_lifetimes(seed);
    used += plan_arena(lifetimes, 256, std::int64_t{1} << 40).total();
    bound += min_bytes(lifetimes, 256);
  }
  EXPECT_LT(static_cast<double>(used), 1.05 * static_cast<double>(bound));
}

TEST(Arena, ReusesWhatDied) {
  const ArenaLayout layout = plan_arena({{0, 1, 1000}, {1, 2, 500}, {2, 3, 1000}}, 256, 1 << 20);
  EXPECT_EQ(layout.total(), 1024 + 512);
}

TEST(Arena, CheckerFindsOverlap) {
  const std::vector<Lifetime> lifetimes{{0, 2, 512}, {2, 3, 512}};
  ArenaLayout layout = plan_arena(lifetimes, 256, 1 << 20);
  EXPECT_NO_THROW(check_arena(lifetimes, layout));
  layout.places[1].offset = layout.places[0].offset + 256;
  layout.block_bytes[0] = 4096;
  EXPECT_THROW(check_arena(lifetimes, layout), Error);
}

TEST(Arena, RefusesWhatFitsNoBlock) { EXPECT_THROW(plan_arena({{0, 0, 1000}}, 256, 512), Error); }

}  // namespace
}  // namespace meshloom::trainer
