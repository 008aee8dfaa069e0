// What a step computes: in order, within its limits, and so that everybody comes to an end.
#include "trainer/inference/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <tuple>

namespace meshloom::tests {
namespace {

using trainer::Chunk;
using trainer::PagePool;
using trainer::ScheduledStep;
using trainer::Sequence;
using trainer::StepLimits;

Sequence of_tokens(std::int64_t tokens, std::uint64_t arrival, int priority = 0) {
  Sequence made;
  made.priority = priority;
  made.arrival = arrival;
  made.tokens.resize(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < made.tokens.size(); ++i)
    made.tokens[i] = static_cast<std::int32_t>(100 * arrival + i);  // nothing alike
  made.prompt = tokens;
  return made;
}

// (arrival, count) of each chunk.
using Chunks = std::vector<std::pair<std::uint64_t, std::int64_t>>;
Chunks chunks_of(const ScheduledStep& step) {
  Chunks chunks;
  for (const Chunk& chunk : step.chunks) chunks.emplace_back(chunk.sequence->arrival, chunk.count);
  return chunks;
}

// Computes a step: sequences whose last token was computed get another.
void carry_out(const ScheduledStep& step) {
  for (const Chunk& chunk : step.chunks) {
    chunk.sequence->computed += chunk.count;
    if (chunk.sequence->pending() == 0) chunk.sequence->tokens.push_back(1);
  }
}

class Schedule : public testing::Test {
 protected:
  ScheduledStep step(PagePool& pool, const StepLimits& limits) {
    std::vector<Sequence*> all;
    for (Sequence& each : sequences) all.push_back(&each);
    return trainer::schedule(all, pool, limits);
  }
  std::vector<Sequence> sequences;
};

TEST_F(Schedule, DecodesFirstThenPromptsInOrder) {
  PagePool pool(100, 4, false);
  sequences = {of_tokens(20, 1, 1), of_tokens(3, 2, 2), of_tokens(9, 3, 0)};
  const StepLimits limits{.tokens = 8, .rows = 4, .sequences = 4};
  ScheduledStep now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{3, 8}}));  // the first by priority
  EXPECT_EQ(now.chunks[0].rows, 0);             // it goes on
  EXPECT_EQ(now.admitted, (std::vector<Sequence*>{&sequences[2]}));
  carry_out(now);
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{3, 1}, {1, 7}}));
  EXPECT_EQ(now.chunks[0].rows, 1);
  carry_out(now);
  now = step(pool, limits);  // 3 decodes now
  EXPECT_EQ(chunks_of(now), (Chunks{{3, 1}, {1, 7}}));
  carry_out(now);
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{3, 1}, {1, 6}, {2, 1}}));
  carry_out(now);
  sequences.push_back(of_tokens(30, 4, -1));  // decodes come first all the same
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{3, 1}, {1, 1}, {4, 6}}));
}

TEST_F(Schedule, RunsNoMoreThanItsSequences) {
  PagePool pool(100, 4, false);
  for (std::uint64_t i = 1; i <= 5; ++i) sequences.push_back(of_tokens(2, i));
  const ScheduledStep now = step(pool, {.tokens = 50, .rows = 2, .sequences = 2});
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 2}, {2, 2}}));
}

TEST_F(Schedule, ScoredPromptsTakeChunksOfTheRowsThereAre) {
  PagePool pool(100, 4, false);
  sequences = {of_tokens(2, 1), of_tokens(9, 2), of_tokens(3, 3)};
  sequences[1].scored = 0;
  const StepLimits limits{.tokens = 50, .rows = 4, .sequences = 4};
  ScheduledStep now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 2}, {2, 3}, {3, 2}}));  // no row is left for the last of 3
  EXPECT_EQ(now.chunks[1].rows, 3);
  EXPECT_EQ(now.chunks[2].rows, 0);
  carry_out(now);
  sequences[1].scored = 3;
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 1}, {3, 1}, {2, 2}}));
  carry_out(now);
  // Computed again, only those are scored that were not.
  pool.drop(sequences[1].pages);
  sequences[1].pages.clear();
  sequences[1].running = false;
  sequences[1].computed = 0;
  sequences[1].scored = 5;
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 1}, {3, 1}, {2, 7}}));
  EXPECT_EQ(now.chunks[2].rows, 2);
}

TEST_F(Schedule, TakesThePagesOfTheNewestOfTheLowestPriority) {
  PagePool pool(6, 2, false);
  sequences = {of_tokens(4, 1), of_tokens(3, 2, 1), of_tokens(3, 3, 1)};
  const StepLimits limits{.tokens = 50, .rows = 4, .sequences = 4};
  ScheduledStep now = step(pool, limits);
  EXPECT_EQ(now.chunks.size(), 3u);
  EXPECT_EQ(pool.available(), 0);
  carry_out(now);
  now = step(pool, limits);  // the first needs a third page; the others have room for a token
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 1}, {2, 1}}));
  EXPECT_EQ(now.preempted, (std::vector<Sequence*>{&sequences[2]}));
  EXPECT_TRUE(sequences[2].pages.empty());
  EXPECT_EQ(sequences[2].computed, 0);
  EXPECT_FALSE(sequences[2].running);
  carry_out(now);
  // One page is left: less than the tokens of the last take, so that it waits.
  EXPECT_EQ(pool.available(), 1);
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 1}, {2, 1}}));
  EXPECT_TRUE(now.preempted.empty());
}

// What the step was to compute of the sequence whose pages it takes is not computed.
TEST_F(Schedule, DropsTheChunkOfWhomItPreempts) {
  PagePool pool(4, 2, false);
  sequences = {of_tokens(8, 1), of_tokens(1, 2)};
  const StepLimits limits{.tokens = 4, .rows = 4, .sequences = 2};
  carry_out(step(pool, {.tokens = 2, .rows = 4, .sequences = 2}));  // 2 tokens of the first
  // As if the second had begun before the first was promised its pages.
  sequences[1].running = true;
  sequences[1].pages = {*pool.take()};
  ScheduledStep now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{2, 1}, {1, 3}}));
  carry_out(now);
  now = step(pool, limits);  // the second has room for its token, but the first needs the fourth page
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 3}}));
  EXPECT_EQ(now.preempted, (std::vector<Sequence*>{&sequences[1]}));
}

TEST_F(Schedule, NobodyOvertakesOneThatWaitsForPages) {
  PagePool pool(6, 2, false);
  sequences = {of_tokens(4, 1), of_tokens(9, 2), of_tokens(2, 3)};
  const StepLimits limits{.tokens = 50, .rows = 4, .sequences = 4};
  ScheduledStep now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 4}}));
  carry_out(now);
  pool.drop(sequences[0].pages);
  sequences.erase(sequences.begin());
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{2, 9}, {3, 2}}));
}

TEST_F(Schedule, BeginsBehindThePagesThatItFinds) {
  PagePool pool(8, 2);
  sequences = {of_tokens(7, 1)};
  const StepLimits limits{.tokens = 50, .rows = 4, .sequences = 4};
  carry_out(step(pool, limits));
  Sequence& first = sequences[0];
  for (std::size_t i = 0; i < 3; ++i)
    pool.keep(first.pages[i], i == 0 ? trainer::kNoPage : first.pages[i - 1],
              std::span(first.tokens).subspan(2 * i, 2));
  const std::vector<trainer::Page> pages = first.pages;
  const auto again = [&](std::int64_t tokens, bool prefix_cache) {
    pool.drop(sequences[0].pages);
    sequences[0] = of_tokens(tokens, 1);
    sequences[0].prefix_cache = prefix_cache;
    return step(pool, limits);
  };
  EXPECT_EQ(chunks_of(again(7, true)), (Chunks{{1, 1}}));
  EXPECT_EQ(sequences[0].found, 6);
  EXPECT_EQ(std::vector(sequences[0].pages.begin(), sequences[0].pages.begin() + 3),
            std::vector(pages.begin(), pages.begin() + 3));
  EXPECT_EQ(chunks_of(again(6, true)), (Chunks{{1, 2}}));  // the last token is computed
  EXPECT_EQ(chunks_of(again(7, false)), (Chunks{{1, 7}}));
  EXPECT_EQ(sequences[0].found, 0);
}

TEST_F(Schedule, DraftsGetWhatIsLeft) {
  PagePool pool(5, 4, false);
  sequences = {of_tokens(3, 1), of_tokens(3, 2), of_tokens(7, 3)};
  StepLimits limits{.tokens = 16, .rows = 6, .sequences = 4};
  carry_out(step(pool, limits));  // each has a token to compute now
  for (Sequence& each : sequences) each.drafts = {1, 2, 3, 4, 5, 6};
  ScheduledStep now = step(pool, limits);
  // Of the 6 rows each text has one, and the first the rest; it would have taken the last page otherwise.
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 4}, {2, 1}, {3, 1}}));
  EXPECT_EQ(now.chunks[0].rows, 4);
  for (const Sequence& each : sequences) EXPECT_TRUE(each.running);
  EXPECT_EQ(sequences[0].pages.size(), 2u);
  EXPECT_EQ(pool.available(), 0);
  // No page is left for drafts of the others, and nobody is preempted for them.
  limits.rows = 16;
  now = step(pool, limits);
  EXPECT_EQ(chunks_of(now), (Chunks{{1, 5}, {2, 1}, {3, 1}}));
  EXPECT_TRUE(now.preempted.empty());
  EXPECT_EQ(sequences[0].token(4), 1);
  EXPECT_EQ(sequences[0].token(9), 6);
}

// Random requests of random lives: no limit is broken, no page has two users, and all end.
TEST_F(Schedule, KeepsItsLimitsUntilAllHaveEnded) {
  int preemptions = 0, steps = 0, drafts = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto upto = [&](std::int64_t most) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
    };
    const std::int64_t page = upto(5), longest = 5 + upto(40);
    const StepLimits limits{.tokens = upto(20), .rows = upto(6), .sequences = upto(6)};
    PagePool pool((longest + page - 1) / page + upto(6) - 1, page, seed % 2 == 0);
    struct Life {
      Sequence sequence;
      std::int64_t ends, known = 0;
      explicit Life(Sequence made, std::int64_t end) : sequence(std::move(made)), ends(end) {}
    };
    std::vector<std::unique_ptr<Life>> lives;
    std::uint64_t arrival = 0;
    for (int count = 0; (arrival < 15 || !lives.empty()) && count < 5000; ++count, ++steps) {
      while (arrival < 15 && (lives.empty() || random() % 2 == 0)) {
        const std::int64_t end = upto(longest - 1) + 1, tokens = std::min(end - 1, upto(longest));
        lives.push_back(
            std::make_unique<Life>(of_tokens(tokens, ++arrival, static_cast<int>(random() % 3)), end));
        std::vector<std::int32_t>& ids = lives.back()->sequence.tokens;
        for (std::size_t i = 0; i < ids.size(); ++i)
          ids[i] = static_cast<std::int32_t>(i % 2 == 0 ? 0 : random() % 2);
        if (random() % 3 == 0) lives.back()->sequence.scored = 0, lives.back()->sequence.prefix_cache = false;
      }
      std::vector<Sequence*> all;
      for (const auto& life : lives) {
        Sequence& s = life->sequence;
        all.push_back(&s);
        if (s.running && s.pending() == 1)
          s.drafts.resize(static_cast<std::size_t>(std::min(life->ends - s.size() - 1, upto(6) - 1)), 1);
      }
      const ScheduledStep now = trainer::schedule(all, pool, limits);
      preemptions += static_cast<int>(now.preempted.size());
      ASSERT_FALSE(now.chunks.empty()) << "seed " << seed;
      std::int64_t tokens = 0, rows = 0;
      std::set<const Sequence*> seen;
      for (const Chunk& chunk : now.chunks) {
        ASSERT_TRUE(seen.insert(chunk.sequence).second);
        ASSERT_TRUE(chunk.sequence->running);
        ASSERT_GE(chunk.count, 1);
        ASSERT_LE(chunk.count,
                  chunk.sequence->pending() + static_cast<std::int64_t>(chunk.sequence->drafts.size()));
        ASSERT_LE(chunk.sequence->computed + chunk.count,
                  static_cast<std::int64_t>(chunk.sequence->pages.size()) * page);
        std::int64_t wanted = 0;
        for (std::int64_t i = 0; i < chunk.count; ++i)
          wanted += chunk.sequence->wants_logits(chunk.sequence->computed + i);
        ASSERT_EQ(chunk.rows, wanted);
        tokens += chunk.count, rows += chunk.rows;
      }
      ASSERT_LE(tokens, limits.tokens);
      ASSERT_LE(rows, limits.rows);
      ASSERT_LE(std::count_if(all.begin(), all.end(), [](auto* s) { return s->running; }), limits.sequences);
      // What is written into has one user.
      std::multiset<trainer::Page> users;
      for (const Sequence* s : all) users.insert(s->pages.begin(), s->pages.end());
      ASSERT_EQ(static_cast<std::int64_t>(std::set(users.begin(), users.end()).size()), pool.in_use());
      for (const Chunk& chunk : now.chunks)
        for (std::int64_t i = 0; i < chunk.count; ++i)
          ASSERT_EQ(
              users.count(
                  chunk.sequence->pages[static_cast<std::size_t>((chunk.sequence->computed + i) / page)]),
              1u);
      for (const auto& life : lives) {
        Sequence& s = life->sequence;
        for (const Sequence* each : now.preempted)
          if (each == &s) life->known = 0;
        for (const Sequence* each : now.admitted)
          if (each == &s) life->known = s.found / page;
      }
      for (const Chunk& chunk : now.chunks) {
        Sequence& s = *chunk.sequence;
        Life& life = **std::find_if(lives.begin(), lives.end(),
                                    [&](const auto& each) { return &each->sequence == &s; });
        for (std::int64_t i = 0; i < chunk.count; ++i)
          if (s.computed + i < s.prompt - 1 && s.computed + i >= s.scored) s.scored = s.computed + i + 1;
        const std::int64_t drafted = std::max<std::int64_t>(chunk.count - s.pending(), 0);
        drafts += static_cast<int>(drafted);
        s.computed += chunk.count - drafted;
        // Some are right.
        for (std::int64_t right = upto(drafted + 1) - 1; right > 0; --right, ++s.computed)
          s.tokens.push_back(s.drafts[0]);
        if (s.pending() == 0) s.drafts.clear();
        for (; (life.known + 1) * page <= s.computed; ++life.known) {
          const auto index = static_cast<std::size_t>(life.known);
          s.pages[index] = pool.keep(s.pages[index], index == 0 ? trainer::kNoPage : s.pages[index - 1],
                                     std::span(s.tokens).subspan(index * static_cast<std::size_t>(page),
                                                                 static_cast<std::size_t>(page)));
        }
        if (s.pending() == 0) s.tokens.push_back(static_cast<std::int32_t>(random() % 2));
      }
      std::erase_if(lives, [&](const auto& life) {
        if (life->sequence.size() < life->ends) return false;
        pool.drop(life->sequence.pages);
        return true;
      });
    }
    ASSERT_TRUE(lives.empty()) << "seed " << seed;
    ASSERT_EQ(pool.in_use(), 0);
  }
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(drafts, 1000);
  std::printf("%d steps, %d preemptions\n", steps, preemptions);
}

}  // namespace
}  // namespace meshloom::tests
