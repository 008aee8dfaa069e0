// Text that comes token by token is the text of all tokens at once.
#include "trainer/inference/text_stream.h"

#include <gtest/gtest.h>

#include "kernels/core/rng.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/data/tokenizer/unicode.h"

namespace meshloom::tests {
namespace {

using trainer::StopStrings;
using trainer::TextStream;
using trainer::Tokenizer;
using Ids = std::vector<std::int32_t>;

std::string utf8(const std::string& bytes) {
  std::string text;
  if (trainer::append_utf8(bytes, text) > 0) text += "\xef\xbf\xbd";
  return text;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, const std::vector<std::string>& stops = {},
                     const Ids& context = {}) {
  TextStream stream(tokenizer, context, stops);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string part = stream.add(id);
    EXPECT_EQ(utf8(part), part);
    text += part;
  }
  text += stream.finish();
  if (stops.empty()) {
    EXPECT_EQ(stream.characters(), trainer::count_characters(text));
  }
  return text;
}

std::vector<std::unique_ptr<Tokenizer>> tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(trainer::byte_tokenizer());
  for (const char* name : {"bpe", "unigram", "char"})
    all.push_back(trainer::sentencepiece_tokenizer(MESHLOOM_SOURCE_DIR "/tests/fuzz/seeds/sentencepiece/" +
                                                   std::string(name) + ".model"));
  for (const char* name : {"gpt2", "llama2", "llama3", "qwen", "smollm"})
    all.push_back(trainer::tokenizer_json(
        MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tokenizers/" + std::string(name) + ".json", false));
  return all;
}

TEST(TextStream, RandomTokensHaveTheTextOfAllAtOnce) {
  kernels::Rng rng(5);
  for (const auto& tokenizer : tokenizers()) {
    for (int round = 0; round < 60; ++round) {
      Ids ids;
      const std::int64_t known =
          rng.flip() ? tokenizer->vocabulary() + 2 : std::min<std::int64_t>(300, tokenizer->vocabulary());
      while (ids.size() < 120) {
        const auto id = static_cast<std::int32_t>(rng.integer(-1, known));
        for (std::int64_t times = rng.integer(0, 9) == 0 ? rng.integer(1, 40) : 1; times > 0; --times)
          ids.push_back(id);
      }
      EXPECT_EQ(streamed(*tokenizer, ids), utf8(tokenizer->decode(ids))) << tokenizer->name() << " " << round;
    }
  }
}

TEST(TextStream, TextOfManyScripts) {
  const std::string text =
      " In the beginning \xe2\x82\xac 5, \xf0\x9f\x98\x80\xf0\x9f\x98\x80 \xe4\xb8\xad\xe6\x96\x87 "
      "na\xc3\xafve  two  spaces\n\n\ttab "
      "\xff\xfe bad \xe2\x82 cut \xf0\x9f";
  for (const auto& tokenizer : tokenizers()) {
    Ids ids;
    for (int i = 0; i < 8; ++i)
      for (const std::int32_t id : tokenizer->encode(text)) ids.push_back(id);
    EXPECT_EQ(streamed(*tokenizer, ids), utf8(tokenizer->decode(ids))) << tokenizer->name();
    for (std::size_t cut = 0; cut < ids.size() / 4; ++cut) {
      const auto at = ids.begin() + static_cast<std::ptrdiff_t>(cut);
      const Ids context(ids.begin(), at), rest(at, ids.end());
      const std::string whole = tokenizer->decode(ids), front = tokenizer->decode(context);
      if (!whole.starts_with(front) || front.ends_with("\xef\xbf\xbd")) continue;  // within a character
      EXPECT_EQ(streamed(*tokenizer, rest, {}, context), utf8(whole.substr(front.size())))
          << tokenizer->name() << " " << cut;
    }
  }
}

TEST(TextStream, AContextKeepsTheSpaceOfTheNextWord) {
  const auto tokenizer =
      trainer::tokenizer_json(MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tokenizers/llama2.json", false);
  const Ids ids = tokenizer->encode("the the");
  ASSERT_EQ(tokenizer->decode(ids), "the the");
  std::size_t cut = 1;
  while (tokenizer->decode(std::span(ids).first(cut)) != "the") ++cut;
  const Ids context(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut)),
      rest(ids.begin() + static_cast<std::ptrdiff_t>(cut), ids.end());
  EXPECT_EQ(streamed(*tokenizer, rest, {}, context), " the");
  EXPECT_EQ(streamed(*tokenizer, rest), "the");
}

// Counts what is decoded.
class Counting : public Tokenizer {
 public:
  explicit Counting(std::unique_ptr<Tokenizer> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  std::int64_t vocabulary() const override { return inner_->vocabulary(); }
  Ids encode(std::string_view text) const override { return inner_->encode(text); }
  std::string decode(std::span<const std::int32_t> ids) const override {
    decoded += ids.size();
    return inner_->decode(ids);
  }
  mutable std::size_t decoded = 0;

 private:
  std::unique_ptr<Tokenizer> inner_;
};

TEST(TextStream, TheCostOfATokenDoesNotGrow) {
  for (auto& tokenizer : tokenizers()) {
    const Counting counting(std::move(tokenizer));
    kernels::Rng rng(3);
    for (const bool constant : {false, true}) {
      Ids ids;
      for (int i = 0; i < 4000; ++i)
        ids.push_back(constant ? 0 : static_cast<std::int32_t>(rng.integer(0, counting.vocabulary() - 1)));
      counting.decoded = 0;
      TextStream stream(counting);
      for (const std::int32_t id : ids) stream.add(id);
      EXPECT_LT(counting.decoded, 40 * ids.size()) << counting.name() << constant;
    }
  }
}

TEST(TextStream, StopStringsSpanTokens) {
  const auto tokenizer = trainer::byte_tokenizer();
  const auto text = [&](const std::string& all, const std::vector<std::string>& stops) {
    return streamed(*tokenizer, tokenizer->encode(all), stops);
  };
  EXPECT_EQ(text("one END two", {"END"}), "one ");
  EXPECT_EQ(text("one EN", {"END"}), "one EN") << "a beginning alone is text";
  EXPECT_EQ(text("one ENEND", {"END"}), "one EN");
  EXPECT_EQ(text("aaab", {"aab"}), "a");
  EXPECT_EQ(text("abcd", {"bcd", "c"}), "ab") << "the first that is complete";
  EXPECT_EQ(text("abcd", {"c", "abc"}), "") << "of two that end together the longer";
  EXPECT_EQ(text("x\xe2\x82\xacy", {"\xe2\x82\xac"}), "x");
  EXPECT_EQ(text("END", {"END"}), "");
  TextStream stream(*tokenizer, {}, {"END"});
  EXPECT_EQ(stream.add('E'), "");
  EXPECT_EQ(stream.add('x'), "Ex");
  EXPECT_EQ(stream.add('\xe2' & 0xff), "");
  EXPECT_EQ(stream.add('E'), "\xef\xbf\xbd");
  EXPECT_FALSE(stream.stopped());
  stream.add('N'), stream.add('D');
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.add('x') + stream.finish(), "");
}

TEST(TextStream, StopStringsAreThoseOfASearch) {
  kernels::Rng rng(9);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](std::int64_t size) {
      std::string text;
      while (size-- > 0) text += static_cast<char>('a' + rng.integer(0, 1));
      return text;
    };
    const std::string text = word(rng.integer(0, 30));
    std::vector<std::string> stops;
    for (std::int64_t i = rng.integer(1, 3); i > 0; --i) stops.push_back(word(rng.integer(1, 6)));
    std::size_t end = std::string::npos, want = text.size();
    for (const std::string& stop : stops)
      if (const std::size_t at = text.find(stop); at != std::string::npos && at + stop.size() <= end) {
        want = at + stop.size() == end ? std::min(want, at) : at;
        end = at + stop.size();
      }
    StopStrings found(stops);
    std::size_t final = 0;
    for (const char c : text) {
      const std::size_t next = found.add({&c, 1});
      EXPECT_GE(next, final);
      final = next;
    }
    EXPECT_EQ(found.found(), end != std::string::npos);
    if (found.found()) {
      EXPECT_EQ(final, want) << text;
    }
    EXPECT_LE(final, want) << text;
  }
}

}  // namespace
}  // namespace meshloom::tests
