// Ids and texts equal those of Hugging Face tokenizers (make_tokenizers.py), and any fault in a file is an
// Error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "kernels/core/rng.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/data/tokenizer/unicode.h"

namespace meshloom::tests {
namespace {

using Json = nlohmann::json;

const std::string kDirectory = MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tokenizers";
const std::vector<std::string> kNames{"gpt2", "llama2", "llama3", "qwen", "smollm"};

std::string text_of(const std::string& name) { return read_text(kDirectory + "/" + name + ".json"); }

std::string error_of(const std::string& text) {
  try {
    trainer::parse_tokenizer_json(text, "file", true)->encode("In the 12 beginning\xff <|end|>");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

class TokenizerJson : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerJson, SameIds) {
  const char* lines = std::getenv("MESHLOOM_TOKENIZER_LINES");
  const Json rows = Json::parse(read_text((lines ? lines : kDirectory) + "/" + GetParam() + ".ids.json"));
  const auto tokenizer = trainer::tokenizer_json(kDirectory + "/" + GetParam() + ".json", true);
  ASSERT_FALSE(rows.empty());
  int wrong = 0;
  for (const Json& row : rows) {
    const auto text = row[0].get<std::string>();
    const auto want = row[1].get<std::vector<std::int32_t>>();
    const auto got = tokenizer->encode(text);
    // Theirs replaces what is not UTF-8, which here is the text's end at most.
    const std::string decoded = tokenizer->decode(want), wanted = row[2];
    const bool same_text = decoded == wanted || wanted.find("\xef\xbf\xbd") != std::string::npos;
    if (got == want && same_text) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << row[0].dump(-1, ' ', true) << "\ngot  " << Json(got) << "\nwant " << Json(want)
                    << "\ntexts " << Json(decoded).dump(-1, ' ', true, Json::error_handler_t::replace) << " "
                    << row[2].dump(-1, ' ', true);
  }
  EXPECT_EQ(wrong, 0) << "of " << rows.size();
}

TEST_P(TokenizerJson, BytesThatAreNoTextComeBack) {
  if (GetParam() == "llama2" || GetParam() == "qwen")
    GTEST_SKIP() << "letters, or a normal form: not every byte comes back";
  const auto tokenizer = trainer::tokenizer_json(kDirectory + "/" + GetParam() + ".json", false);
  kernels::Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (std::int64_t i = rng.integer(0, 60); i > 0; --i) text += static_cast<char>(rng.integer(0, 255));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

// Whatever bytes change, the parser says what is wrong in one line or takes the file; nothing else may
// happen.
TEST_P(TokenizerJson, SpoiledFilesAreErrors) {
  const char* rounds = std::getenv("MESHLOOM_FUZZ_ROUNDS");
  const std::string whole = text_of(GetParam());
  kernels::Rng rng(7);
  for (int round = rounds ? std::atoi(rounds) : 60; round > 0; --round) {
    std::string text = whole;
    if (rng.flip()) {
      text.resize(static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()))));
    } else {
      for (std::int64_t i = rng.integer(1, 6); i > 0; --i) {
        auto& byte =
            text[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1))];
        byte = rng.flip() ? "{}[]\",:0-"[rng.integer(0, 8)] : static_cast<char>(rng.integer(0, 255));
      }
    }
    EXPECT_EQ(error_of(text).find('\n'), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, TokenizerJson, testing::ValuesIn(kNames),
                         [](const auto& info) { return info.param; });

TEST(TokenizerJsonErrors, NameThePartAndTheRule) {
  const Json good = Json::parse(text_of("gpt2"));
  const auto error = [&](const std::function<void(Json&)>& spoil) {
    Json json = good;
    spoil(json);
    return error_of(json.dump());
  };
  const auto holds = [](const std::string& text, const std::vector<std::string>& words) {
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string& word) { return text.find(word) != std::string::npos; });
  };
  EXPECT_EQ(error([](Json&) {}), "");
  const std::vector<std::pair<std::function<void(Json&)>, std::vector<std::string>>> cases{
      {[](Json& j) { j["model"]["type"] = "WordPiece"; }, {"model.type", "BPE", "WordPiece"}},
      {[](Json& j) { j["model"].erase("vocab"); }, {"model.vocab"}},
      {[](Json& j) { j["model"]["vocab"]["x"] = -1; }, {"model.vocab 'x'", "-1"}},
      {[](Json& j) { j["model"]["vocab"]["zz"] = 5; }, {"one token", "5"}},
      {[](Json& j) { j["model"]["vocab"]["zz"] = 1 << 30; }, {"below 2^24"}},
      {[](Json& j) { j["model"]["merges"].push_back("lonely"); }, {"merges[", "two tokens", "lonely"}},
      {[](Json& j) { j["model"]["merges"].push_back("q qqqqq"); }, {"merges[", "in vocab"}},
      {[](Json& j) { j["model"]["dropout"] = 0.5; }, {"model.dropout", "0.5"}},
      {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, {"end_of_word_suffix"}},
      {[](Json& j) { j["model"]["unk_token"] = "nope"; }, {"unk_token", "nope"}},
      {[](Json& j) {
         j["normalizer"] = {{"type", "BertNormalizer"}};
       },
       {"normalizer", "BertNormalizer"}},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       {"pre_tokenizer", "Whitespace"}},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
       },
       {"pre_tokenizer.pattern", "regular expression"}},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Often"}};
       },
       {"behavior", "Often"}},
      {[](Json& j) {
         j["post_processor"] = {{"type", "RobertaProcessing"}};
       },
       {"post_processor", "RobertaProcessing"}},
      {[](Json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       {"decoder", "WordPiece"}},
      {[](Json& j) { j["added_tokens"][0]["single_word"] = true; }, {"added_tokens[0]", "single_word"}},
      {[](Json& j) { j["added_tokens"][0]["content"] = ""; }, {"added_tokens[0].content", "empty"}},
      {[](Json& j) { j["added_tokens"][0]["content"] = "else"; }, {"one token"}},
      {[](Json& j) { j["added_tokens"] = 7; }, {"added_tokens", "list"}}};
  for (const auto& [spoil, words] : cases) {
    const std::string text = error(spoil);
    EXPECT_TRUE(holds(text, words)) << testing::PrintToString(words) << " not all in: " << text;
  }
  EXPECT_TRUE(holds(error_of("[]"), {"file", "object"}));
  EXPECT_TRUE(holds(error_of(std::string(100000, '[')), {"file", "nest"}));
  EXPECT_TRUE(holds(error_of("{\"model\": {}, \"model\": {}}"), {"once", "model"}));
}

// Which token holds a byte, where the tokens' text is the text.
TEST(TokenizerJson, PlacesOfBytesAreTheTokens) {
  for (const std::string name : {"gpt2", "llama3", "qwen", "smollm", "llama2"}) {
    const auto tokenizer = trainer::parse_tokenizer_json(text_of(name), name, false);
    const std::string begin = name == "llama2" ? "<s>" : "<|begin|>",
                      text = "In the" + begin + "beginning  \xc3\xa9 12\n";
    std::vector<std::size_t> bytes(text.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = i;
    const auto encoding = tokenizer->encode_with_offsets(text, bytes);
    EXPECT_EQ(encoding.ids, tokenizer->encode_part(text)) << name;
    ASSERT_EQ(encoding.token_at.size(), bytes.size()) << name;
    EXPECT_EQ(encoding.token_at.front(), 0u) << name;
    EXPECT_EQ(encoding.token_at.back(), encoding.ids.size() - 1) << name;
    for (std::size_t i = 0; i < begin.size(); ++i)
      EXPECT_EQ(tokenizer->token(encoding.ids[encoding.token_at[6 + i]]), begin) << name;
    for (std::size_t i = 1; i < bytes.size(); ++i) {
      EXPECT_GE(encoding.token_at[i], encoding.token_at[i - 1]) << name << " " << i;
      EXPECT_LE(encoding.token_at[i], encoding.token_at[i - 1] + 2)
          << name << " " << i;  // one may stand for no byte: "▁" in front
    }
  }
}

// The ids are those of tokenizers 0.23.
TEST(TokenizerJson, TokensOfSpacesAreFoundAmongTakenSpaces) {
  const auto tokenizer = trainer::parse_tokenizer_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2}, "merges": []}, "added_tokens": [
          {"id": 3, "content": "<r>", "rstrip": true, "normalized": false, "special": true},
          {"id": 4, "content": "  ", "normalized": false},
          {"id": 5, "content": "\n", "lstrip": true, "normalized": false}]})",
      "file", true);
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(tokenizer->encode("a<r>  b"), (Ids{0, 3, 4, 1}));
  EXPECT_EQ(tokenizer->encode("a<r>   b"), (Ids{0, 3, 4, 2, 1}));
  EXPECT_EQ(tokenizer->encode("<r>\nb"), (Ids{3, 1}));
  EXPECT_EQ(tokenizer->encode("a  \n<r>"), (Ids{0, 4, 5, 3}));
}

TEST(TokenizerJson, AnEmptyMatchPutsTextIn) {
  const auto tokenizer = trainer::parse_tokenizer_json(
      R"({"normalizer": {"type": "Replace", "pattern": {"Regex": "^"}, "content": "b"},
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\n": 2}, "merges": []}})",
      "file", true);
  EXPECT_EQ(tokenizer->encode("a\na"), (std::vector<std::int32_t>{1, 0, 2, 1, 0}));
  EXPECT_TRUE(tokenizer->encode("").empty());
}

TEST(Unicode, AHungryPatternIsStopped) {
  const trainer::UnicodeRegex hungry("(a+)+$", "pattern");
  EXPECT_THROW(hungry.matches(std::string(64, 'a') + "b"), Error);
}

TEST(Unicode, NormalFormsLeaveOtherBytesAlone) {
  EXPECT_EQ(trainer::normalize("e\xcc\x81\xff"
                               "e\xcc\x81",
                               trainer::NormalForm::nfc),
            "\xc3\xa9\xff\xc3\xa9");
  EXPECT_EQ(trainer::normalize("\xef\xac\x81", trainer::NormalForm::nfkc), "fi");
  EXPECT_EQ(trainer::normalize("\xc3\xa9", trainer::NormalForm::nfd), "e\xcc\x81");
}

}  // namespace
}  // namespace meshloom::tests
