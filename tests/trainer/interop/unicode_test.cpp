// Every character as Hugging Face tokenizers see it (make_unicode.py): classes of patterns, normal forms.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/tokenizer/unicode.h"
#include "trainer/data/tokenizer/unicode_tables.h"

namespace meshloom::tests {
namespace {

std::string utf8(std::uint32_t letter) {
  const auto low = [&](int shift) { return static_cast<char>(0x80 | (letter >> shift & 63)); };
  if (letter < 0x80) return {static_cast<char>(letter)};
  if (letter < 0x800) return {static_cast<char>(0xc0 | letter >> 6), low(0)};
  if (letter < 0x10000) return {static_cast<char>(0xe0 | letter >> 12), low(6), low(0)};
  return {static_cast<char>(0xf0 | letter >> 18), low(12), low(6), low(0)};
}

std::vector<std::string> letters() {
  std::vector<std::string> all;
  for (std::uint32_t c = 1; c < 0x32400; ++c)
    if (c < 0xd800 || c > 0xdfff) all.push_back(utf8(c));
  return all;
}

// FNV-1a.
std::string hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", value);
}

const nlohmann::json& golden() {
  static const nlohmann::json all =
      nlohmann::json::parse(read_text(MESHLOOM_SOURCE_DIR "/tests/trainer/interop/unicode.json"));
  return all;
}

TEST(Unicode, ClassesAreThoseOfTokenizers) {
  std::string text;
  for (const std::string& letter : letters()) text += letter;
  for (const auto& [pattern, want] : golden()["patterns"].items()) {
    std::string matched;
    const auto found = trainer::UnicodeRegex(pattern, "pattern").matches(text);
    for (const auto& [begin, end] : found) matched += text.substr(begin, end - begin);
    EXPECT_EQ(found.size(), want[0]) << pattern;
    EXPECT_EQ(hash(matched), want[1]) << pattern;
  }
}

TEST(Unicode, NormalFormsAreThoseOfTokenizers) {
  using trainer::NormalForm;
  for (const auto& [name, form] :
       {std::pair{"NFC", NormalForm::nfc}, std::pair{"NFD", NormalForm::nfd},
        std::pair{"NFKC", NormalForm::nfkc}, std::pair{"NFKD", NormalForm::nfkd}}) {
    std::string text;
    for (const std::string& letter : letters())
      text += trainer::normalize("a\u0334\u0327\u0301" + letter + "\u0334\u3099\u0301\u0345", form);
    EXPECT_EQ(hash(text), golden()["forms"][name]) << name;
  }
}

// A text with a bar at every border of a match, which are those where tokenizers 0.23 splits it.
std::string split(const std::string& pattern, const std::string& text) {
  std::string out;
  std::size_t at = 0;
  const auto add = [&](std::size_t end) {
    if (end > at) out += (at > 0 ? "|" : "") + text.substr(at, end - at);
    at = end;
  };
  for (const auto& [begin, end] : trainer::UnicodeRegex(pattern, "pattern").matches(text)) {
    add(begin);
    add(end);
  }
  add(text.size());
  return out;
}

TEST(Unicode, PatternsMeanWhatTheyMeanToTokenizers) {
  EXPECT_EQ(split("(?=(\\d{3})+(?!\\d))", "a1234567"), "a1|234|567");  // an empty match is a border
  EXPECT_EQ(split("x*", "axxb"), "a|xx|b");
  EXPECT_EQ(split("$", "a\n\nb\n"), "a|\n|\nb|\n");
  EXPECT_EQ(split("^", "a\n\nb\n"), "a\n|\n|b\n");
  EXPECT_EQ(split("\\s++$|\\s", "a  \n  b  "), "a| | |\n| | |b|  ");
  EXPECT_EQ(split("\\p{N}{1,3}+", "123456789 12"), "123456789| |12");
  EXPECT_EQ(split("(?:[0-9](a)?){2}+\\)", "1a23a4)"), "1a23a4)");
  EXPECT_EQ(split("\\p{N}{1,3}", "12345 12"), "123|45| |12");
  EXPECT_EQ(split("a{,2}", "aaaaa{,2}"), "aa|aa|a|{|,|2|}");
  EXPECT_EQ(split("\\h+", "ab 12 xyz"), "ab| |12| xyz");
  EXPECT_EQ(split("\\v",
                  "a\x0b"
                  "b\nc\xe2\x80\xa8"),
            "a|\x0b|b\nc\xe2\x80\xa8");
  EXPECT_EQ(split("(?m:.)+", "a\nb"), "a\nb");
  EXPECT_EQ(split("\\w+\\b",
                  "e\xcc\x81"
                  "a b"),
            "e\xcc\x81"
            "a| |b");
  EXPECT_EQ(split("\\Bb",
                  "e\xcc\x81"
                  "b b"),
            "e\xcc\x81|b| b");
  EXPECT_TRUE(trainer::UnicodeRegex("^", "pattern").matches("").empty());
}

TEST(Unicode, OperationsOnClassesAreRefused) {
  for (const char* pattern : {"[a-z&&[^aeiou]]", "[\\w&&\\p{L}]", "[ab[cd]]"})
    EXPECT_THROW(trainer::portable_pattern(pattern, "pattern"), Error) << pattern;
  for (const char* pattern : {"&&", "[%&'()]", "[a\\[b]", "[]a]"})
    EXPECT_EQ(trainer::portable_pattern(pattern, "pattern"), pattern);
}

TEST(Unicode, PatternsStayThemselves) {
  for (const char* pattern : {"[^a-z]+", "a\\\\p{L", "\\p{Greek}", "[[:alpha:]]\\n", "[]x]", "\\x{41}"})
    EXPECT_EQ(trainer::portable_pattern(pattern, "pattern"), pattern);
  EXPECT_EQ(trainer::UnicodeRegex("[\\]\\s]+", "pattern").matches("a] b").size(), 1u);
  EXPECT_EQ(trainer::UnicodeRegex("[^\\s\\p{L}]", "pattern").matches("a. b,").size(), 2u);
}

}  // namespace
}  // namespace meshloom::tests
