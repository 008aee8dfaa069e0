#include <gtest/gtest.h>

#include <set>

#include "hal/error.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/batches.h"
#include "trainer/data/corpus.h"

namespace meshloom::trainer {
namespace {

TEST(Input, PermutesEveryIndexOnce) {
  for (std::uint64_t count : {1u, 2u, 3u, 17u, 1000u, 4097u}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < count; ++i) seen.insert(permute_index(i, count, 5, 3));
    EXPECT_EQ(seen.size(), count);
    EXPECT_LT(*seen.rbegin(), count);
  }
  EXPECT_NE(permute_index(0, 1000, 5, 3), permute_index(0, 1000, 5, 4));
}

TEST(Input, WindowsAreAFunctionOfTheStep) {
  const tests::Scratch scratch;
  const auto tokenizer = byte_tokenizer();
  const Corpus corpus =
      read_corpus({scratch.file("a", tests::sample_text(5000))}, {}, 0.1, *tokenizer, 256, 32);
  EXPECT_EQ(corpus.train().size(), 4500);
  EXPECT_EQ(corpus.eval().size(), 500);
  const TextWindows one(corpus.train(), 4, 32, 9), two(corpus.train(), 4, 32, 9);
  for (std::int64_t step : {0, 7, 100, 12345}) {
    const Batch whole = one.rows(step, 0, 4);
    // Micro-batches and other objects read the same rows.
    Batch parts = two.rows(step, 0, 2);
    const Batch rest = two.rows(step, 2, 2);
    parts.tokens.insert(parts.tokens.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(whole.tokens, parts.tokens);
    for (std::size_t i = 0; i + 1 < 32; ++i) EXPECT_EQ(whole.targets[i], whole.tokens[i + 1]);
    for (std::int64_t row = 0; row < 4; ++row) {
      EXPECT_GE(one.start(step, row), 0);
      EXPECT_LE(one.start(step, row) + 33, corpus.train().size());
    }
  }
  // One epoch visits every window once.
  std::set<std::int64_t> starts;
  for (std::int64_t i = 0; i < one.rows_per_epoch(); ++i) starts.insert(one.start(i / 4, i % 4));
  EXPECT_EQ(static_cast<std::int64_t>(starts.size()), one.rows_per_epoch());
}

TEST(Input, ShortCorporaAreSaid) {
  const tests::Scratch scratch;
  const auto tokenizer = byte_tokenizer();
  const std::string file = scratch.file("a", tests::sample_text(33));
  EXPECT_EQ(read_corpus({file}, {}, 0, *tokenizer, 256, 32).train().size(), 33);
  EXPECT_EQ(TextWindows(read_corpus({file}, {}, 0, *tokenizer, 256, 32).train(), 3, 32, 0).rows_per_epoch(),
            1);
  EXPECT_THROW(read_corpus({file}, {}, 0, *tokenizer, 256, 33), Error);
  EXPECT_THROW(read_corpus({file}, {}, 0.5, *tokenizer, 256, 32), Error);
  EXPECT_THROW(read_corpus({file}, {}, 0, *tokenizer, 100, 8), Error);
  EXPECT_THROW(read_corpus({scratch.file("empty", "")}, {}, 0, *tokenizer, 256, 8), Error);
  EXPECT_THROW(read_corpus({scratch.path()}, {}, 0, *tokenizer, 256, 8), Error);
  EXPECT_THROW(read_corpus({scratch.path("none")}, {}, 0, *tokenizer, 256, 8), Error);
  EXPECT_THROW(read_corpus({}, {}, 0, *tokenizer, 256, 8), Error);
}

TEST(Input, BadSentencePieceModelsAreErrors) {
  const tests::Scratch scratch;
  for (const std::string& text : {std::string(), std::string("hello"), std::string(1000, '\xff'),
                                  std::string("\x0a\xff\xff\xff\xff\x0f", 6), std::string("\x0a\x01\x00", 3)})
    EXPECT_THROW(sentencepiece_tokenizer(scratch.file("model", text)), Error) << text;
  EXPECT_THROW(sentencepiece_tokenizer(scratch.path("none")), Error);
}

}  // namespace
}  // namespace meshloom::trainer
