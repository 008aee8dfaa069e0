// Pages: who uses them, which are found again, and that no hash makes one text another.
#include "trainer/inference/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace meshloom::tests {
namespace {

using trainer::kNoPage;
using trainer::Page;
using trainer::PagePool;
using Tokens = std::vector<std::int32_t>;
using Pages = std::vector<Page>;

// The pages of a text of whole pages, which are known afterwards.
Pages kept(PagePool& pool, const Tokens& tokens) {
  Pages pages = pool.find(tokens, pool.size());
  const auto size = static_cast<std::size_t>(pool.page_size());
  for (std::size_t i = pages.size(); i < tokens.size() / size; ++i)
    pages.push_back(
        pool.keep(*pool.take(), i == 0 ? kNoPage : pages[i - 1], std::span(tokens).subspan(i * size, size)));
  return pages;
}

TEST(PagePool, GivesEachPageOnceAndTakesItBack) {
  PagePool pool(3, 4);
  EXPECT_EQ(pool.pages_of(0), 0);
  EXPECT_EQ(pool.pages_of(4), 1);
  EXPECT_EQ(pool.pages_of(5), 2);
  Pages pages;
  for (int i = 0; i < 3; ++i) pages.push_back(*pool.take());
  EXPECT_EQ(pool.in_use(), 3);
  EXPECT_FALSE(pool.take());
  std::sort(pages.begin(), pages.end());
  EXPECT_EQ(pages, (Pages{0, 1, 2}));
  pool.drop(pages);
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_EQ(pool.available(), 3);
}

TEST(PagePool, FindsTheLongestBeginningOfWholePages) {
  PagePool pool(8, 2);
  const Pages first = kept(pool, {1, 2, 3, 4, 5, 6});
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(pool.find(Tokens{1, 2, 3, 4, 5, 6, 7}, 9), first);
  EXPECT_EQ(pool.find(Tokens{1, 2, 3, 4, 5}, 9), (Pages{first[0], first[1]}));
  EXPECT_EQ(pool.find(Tokens{1, 2, 3, 4, 5, 6}, 1), Pages{first[0]});
  EXPECT_EQ(pool.find(Tokens{1, 2, 9, 4, 5, 6}, 9), Pages{first[0]});
  EXPECT_EQ(pool.find(Tokens{3, 4, 5, 6}, 9), Pages{});  // it stood behind other tokens
  EXPECT_EQ(pool.find(Tokens{1}, 9), Pages{});
  EXPECT_EQ(pool.find(Tokens{}, 9), Pages{});
  EXPECT_EQ(pool.in_use(), 3);
}

TEST(PagePool, KeepsAPageUntilItsLastUserDropsIt) {
  PagePool pool(2, 2);
  const Pages first = kept(pool, {1, 2}), second = pool.find(Tokens{1, 2}, 9);
  EXPECT_EQ(first, second);
  EXPECT_EQ(pool.in_use(), 1);
  pool.drop(first);
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_TRUE(pool.take());
  EXPECT_FALSE(pool.take());
  pool.drop(second);
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_TRUE(pool.take());  // nobody uses it any more
  EXPECT_EQ(pool.find(Tokens{1, 2}, 9), Pages{});
}

TEST(PagePool, TakesFreePagesFirstThenThoseUsedLeastRecently) {
  PagePool pool(4, 1);
  const Pages a = kept(pool, {1}), b = kept(pool, {2}), c = kept(pool, {3});
  pool.drop(b);
  pool.drop(a);
  pool.drop(c);
  pool.drop(pool.find(Tokens{2}, 9));  // now a, c, b
  const auto is_known = [&](std::int32_t token) {
    const Pages found = pool.find(Tokens{token}, 9);
    pool.drop(found);
    return !found.empty();
  };
  ASSERT_TRUE(pool.take());
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(*pool.take(), a[0]);
  EXPECT_EQ(*pool.take(), c[0]);
  EXPECT_TRUE(is_known(2));
  EXPECT_FALSE(is_known(1));
  EXPECT_EQ(*pool.take(), b[0]);
  EXPECT_FALSE(is_known(2));
  EXPECT_FALSE(pool.take());
}

// A page is found through those in front of it.
TEST(PagePool, EvictsTheEndOfATextFirst) {
  PagePool pool(3, 1);
  const Pages pages = kept(pool, {1, 2, 3});
  pool.drop(pages);
  ASSERT_TRUE(pool.take());
  const Pages found = pool.find(Tokens{1, 2, 3}, 9);
  EXPECT_EQ(found, (Pages{pages[0], pages[1]}));
}

TEST(PagePool, ReplacesAPageThatWasComputedTwice) {
  PagePool pool(4, 2);
  const Page a = *pool.take(), b = *pool.take();
  EXPECT_EQ(pool.keep(a, kNoPage, Tokens{1, 2}), a);
  EXPECT_EQ(pool.keep(b, kNoPage, Tokens{1, 2}), a);
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_EQ(pool.available(), 3);
  pool.drop(Pages{a});
  EXPECT_EQ(pool.in_use(), 1);
  pool.drop(Pages{a});
  EXPECT_EQ(pool.in_use(), 0);
}

TEST(PagePool, WithoutACacheFindsNothing) {
  PagePool pool(4, 2, false);
  const Pages pages = kept(pool, {1, 2, 1, 2});
  EXPECT_EQ(pages.size(), 2u);
  EXPECT_EQ(pool.find(Tokens{1, 2}, 9), Pages{});
  pool.drop(pages);
  EXPECT_EQ(pool.available(), 4);
}

// Under any hash, also one that calls all texts the same, a page that is found holds just these tokens behind just those.
TEST(PagePool, FindsNothingButTheSameTokens) {
  for (const trainer::PageHash hash :
       {&trainer::page_hash,
        trainer::PageHash([](std::uint64_t, std::span<const std::int32_t>) { return std::uint64_t{7}; })}) {
    PagePool pool(12, 2, true, hash);
    std::mt19937 random(5);
    std::map<Page, Tokens> holds;  // the whole text up to the page's end
    std::vector<Pages> used;
    int found_pages = 0;
    for (int i = 0; i < 5000; ++i) {
      if (used.size() == 3 || (!used.empty() && random() % 3 == 0)) {
        const std::size_t which = random() % used.size();
        pool.drop(used[which]);
        used.erase(used.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      Tokens text(2 * (1 + random() % 4));
      for (std::int32_t& token : text) token = static_cast<std::int32_t>(random() % 2);
      Pages pages = pool.find(text, pool.size());
      found_pages += static_cast<int>(pages.size());
      const auto beginning = [&](std::size_t count) {
        return Tokens(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(2 * count));
      };
      for (std::size_t p = 0; p < pages.size(); ++p) ASSERT_EQ(holds[pages[p]], beginning(p + 1));
      while (pages.size() < text.size() / 2) {
        const std::optional<Page> page = pool.take();
        ASSERT_TRUE(page);  // three texts of four pages
        holds[*page] = beginning(pages.size() + 1);
        pages.push_back(pool.keep(*page, pages.empty() ? kNoPage : pages.back(),
                                  std::span(text).subspan(2 * pages.size(), 2)));
        ASSERT_EQ(holds[pages.back()], beginning(pages.size()));
      }
      used.push_back(pages);
    }
    EXPECT_GT(found_pages, 1000);
    for (const Pages& pages : used) pool.drop(pages);
    EXPECT_EQ(pool.in_use(), 0);
  }
}

}  // namespace
}  // namespace meshloom::tests
