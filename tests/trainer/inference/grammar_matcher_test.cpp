// Tokens that a grammar allows: by brute force over vocabularies of bytes and of pieces, in random walks, and in the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/inference/grammar/gbnf_grammar.h"
#include "trainer/inference/grammar/json_grammar.h"
#include "trainer/inference/grammar/json_schema_grammar.h"
#include "trainer/inference/grammar/regex_grammar.h"
#include "trainer/inference/grammar/token_matcher.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::TokenMatcher;
using trainer::TokenTable;
using Json = nlohmann::ordered_json;

constexpr const char* kPerson =
    R"({"$defs":{"tag":{"enum":["red","green","blue","\"quoted\""]}},"type":"object","properties":{
        "name":{"type":"string","minLength":1,"maxLength":6},"age":{"type":"integer","minimum":0,"maximum":150},
        "score":{"type":"number","minimum":0,"maximum":1},"born":{"type":"string","format":"date"},
        "code":{"type":"string","pattern":"^[A-Z]{2}-\\d+$"},"tags":{"type":"array","items":{"$ref":"#/$defs/tag"},"maxItems":3},
        "friend":{"anyOf":[{"type":"null"},{"$ref":"#"}]}},
        "required":["name","age","friend"],"additionalProperties":{"type":"boolean"}})";

bool person_is_valid(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json.contains("age") || !json.contains("friend"))
    return false;
  for (const auto& [key, value] : json.items()) {
    if (key == "name") {
      const auto text = value.is_string() ? value.get<std::string>() : "";
      const auto size = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
      if (size < 1 || size > 6) return false;
    } else if (key == "age") {
      if (!value.is_number_integer() || value < 0 || value > 150) return false;
    } else if (key == "score") {
      if (!value.is_number() || value < 0 || value > 1) return false;
    } else if (key == "born") {
      if (!value.is_string() ||
          !std::regex_match(value.get<std::string>(), std::regex(R"(\d{4}-[01]\d-[0-3]\d)")))
        return false;
    } else if (key == "code") {
      if (!value.is_string() || !std::regex_match(value.get<std::string>(), std::regex("[A-Z]{2}-[0-9]+")))
        return false;
    } else if (key == "tags") {
      if (!value.is_array() || value.size() > 3) return false;
      for (const auto& tag : value)
        if (tag != "red" && tag != "green" && tag != "blue" && tag != "\"quoted\"") return false;
    } else if (key == "friend") {
      if (!value.is_null() && !person_is_valid(value)) return false;
    } else if (!value.is_boolean()) {
      return false;
    }
  }
  return true;
}

// Every byte, and pieces of a text as byte pair encoding would have them; the last token has no text.
std::vector<std::string> pieces() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::string text =
      "{\"name\": \"Zoë 😀\", \"age\": 42, \"score\": 0.25, \"born\": \"2024-02-29\", \"code\": \"AB-7\",\n  "
      "\"tags\": [\"red\", \"green\"], "
      "\"friend\": null, \"x\": true, \"y\":[[],{}]}}\n    "
      "\"\\\"quoted\\\"\"],\"friend\":{\"name\":\"\\u00e9\\n\"";
  std::set<std::string> seen(tokens.begin(), tokens.end());
  std::mt19937 random(5);
  for (int i = 0; i < 900; ++i) {
    const std::string piece = text.substr(random() % text.size(), 1 + random() % 7);
    if (seen.insert(piece).second) tokens.push_back(piece);
  }
  tokens.push_back(tokens[300]);  // the same bytes again
  tokens.emplace_back();
  return tokens;
}

bool has(std::span<const std::uint64_t> mask, std::size_t id) {
  return id / 64 < mask.size() && (mask[id / 64] >> (id % 64) & 1);
}

std::map<std::string, trainer::SharedGrammar> grammars() {
  return {
      {"person", trainer::grammar_of_json_schema(Json::parse(kPerson))},
      {"open", trainer::grammar_of_json_schema(Json::parse(kPerson), {.standard = true})},
      {"object", trainer::grammar_of_json_object()},
      {"regex", trainer::grammar_of_regex(R"(([a-z]+ )*("\w+",? ?){1,4}|\d+.*)")},
      {"choice", trainer::grammar_of_choice({"name", "names", "na", "age", "é"})},
      {"nested", trainer::grammar_of_gbnf(
                     "root ::= \"{\" root \"}\" | \"[\" root \"]\" root | \"\\\"\" [a-z]* \"\\\"\"")},
      {"ambiguous", trainer::grammar_of_gbnf(
                        "root ::= (a | b | \"na\")* \"}\"\na ::= [a-z] a? | \"\"\nb ::= [a-n]+ | a \" \"")}};
}

// A random text of tokens that are allowed, whose masks are held to the grammar's own answer about each token.
TEST(TokenMatcher, AllowsWhatTheGrammarHasAfterEachToken) {
  const auto table = std::make_shared<TokenTable>(pieces());
  const auto end = static_cast<std::int32_t>(table->size()) - 1;
  std::mt19937 random(1);
  for (const auto& [name, grammar] : grammars()) {
    SCOPED_TRACE(name);
    const auto masks = std::make_shared<trainer::TokenMasks>(grammar, table);
    for (int round = 0; round < 6; ++round) {
      TokenMatcher matcher(masks, {end}, false);
      std::string text;
      for (int step = 0; step < 25 && !matcher.ended(); ++step) {
        const auto mask = matcher.allowed();
        trainer::Stacks stacks(*grammar);
        trainer::Stacks::Set here, next;
        stacks.enter(grammar->begin(), trainer::Stacks::kBottom, here);
        const auto read = [&](const std::string& bytes, trainer::Stacks::Set& set) {
          for (const char c : bytes) {
            stacks.step(set, static_cast<unsigned char>(c), next);
            std::swap(set, next);
          }
        };
        read(text, here);
        std::vector<std::int32_t> choices;
        for (std::size_t id = 0; id < table->size(); ++id) {
          trainer::Stacks::Set after = here;
          read(table->bytes(static_cast<std::int32_t>(id)), after);
          const bool expected = static_cast<std::int32_t>(id) == end ? here.complete : !after.empty();
          ASSERT_EQ(has(mask, id), expected)
              << "'" << table->bytes(static_cast<std::int32_t>(id)) << "' after '" << text << "'";
          if (has(mask, id)) choices.push_back(static_cast<std::int32_t>(id));
        }
        EXPECT_EQ(matcher.is_complete(), here.complete);
        ASSERT_FALSE(choices.empty());
        const std::int32_t chosen = choices[random() % choices.size()];
        matcher.accept(chosen);
        text += table->bytes(chosen);
      }
    }
  }
}

// Draws until the text has ended; where it is long, tokens that lead to its end are preferred.
std::string walk(TokenMatcher& matcher, const TokenTable& table, std::mt19937& random) {
  std::string text;
  for (int step = 0; !matcher.ended(); ++step) {
    if (step > 4000) return "endless: " + text;
    const auto mask = matcher.allowed();
    std::vector<std::int32_t> choices;
    for (std::size_t id = 0; id < table.size(); ++id)
      if (has(mask, id)) choices.push_back(static_cast<std::int32_t>(id));
    std::int32_t chosen = choices[random() % choices.size()];
    if (step > 40)
      for (const char* wanted : {"", "}", "]", "\"", "null", "n", "u", "l"})
        if (const auto found = std::find_if(choices.begin(), choices.end(),
                                            [&](std::int32_t id) { return table.bytes(id) == wanted; });
            found != choices.end() && random() % 4 != 0) {
          chosen = *found;
          break;
        }
    matcher.accept(chosen);
    text += table.bytes(chosen);
  }
  return text;
}

TEST(TokenMatcher, LeadsToValidDocuments) {
  const auto table = std::make_shared<TokenTable>(pieces());
  const auto end = static_cast<std::int32_t>(table->size()) - 1;
  std::mt19937 random(2);
  int ended = 0;
  for (const bool standard : {false, true}) {
    const trainer::SharedGrammar grammar =
        trainer::grammar_of_json_schema(Json::parse(kPerson), {.standard = standard});
    const auto masks = std::make_shared<trainer::TokenMasks>(grammar, table);
    for (int round = 0; round < 150; ++round) {
      TokenMatcher matcher(masks, {end}, false);
      const std::string text = walk(matcher, *table, random);
      ASSERT_TRUE(Json::accept(text)) << text;
      EXPECT_TRUE(person_is_valid(Json::parse(text))) << text;
      EXPECT_TRUE(grammar->accepts(text));
      ++ended;
      // A changed document that is not valid is not of the grammar.
      for (int change = 0; change < 40; ++change) {
        std::string changed = text;
        const std::size_t at = random() % changed.size();
        if (change % 2)
          changed[at] = static_cast<char>(32 + random() % 95);
        else
          changed.erase(at, 1 + random() % 2);
        if (!grammar->accepts(changed)) continue;
        ASSERT_TRUE(Json::accept(changed)) << changed;
        EXPECT_TRUE(person_is_valid(Json::parse(changed))) << changed;
      }
    }
  }
  EXPECT_EQ(ended, 300);
}

TEST(TokenMatcher, EndsOnlyWhereTheGrammarEnds) {
  const auto table = std::make_shared<TokenTable>(pieces());
  const auto end = static_cast<std::int32_t>(table->size()) - 1;
  TokenMatcher matcher(trainer::grammar_of_choice({"na", "name"}), table, {end, 'x'});
  EXPECT_FALSE(has(matcher.allowed(), static_cast<std::size_t>(end)));
  EXPECT_FALSE(has(matcher.allowed(), 'x'));
  EXPECT_THAT(message_of([&] { TokenMatcher(matcher).accept(end); }), HasSubstr("must allow the token"));
  EXPECT_THAT(message_of([&] { TokenMatcher(matcher).accept('b'); }), HasSubstr("must allow the token"));
  EXPECT_THAT(message_of([&] { TokenMatcher(matcher).accept(1 << 30); }), HasSubstr("must allow the token"));
  matcher.accept('n');
  matcher.accept('a');
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(matcher.can_only_end());
  EXPECT_TRUE(has(matcher.allowed(), static_cast<std::size_t>(end)));
  EXPECT_TRUE(has(matcher.allowed(), 'x'));  // an end token, whatever its text is
  TokenMatcher ended = matcher;
  ended.accept(end);
  EXPECT_TRUE(ended.ended());
  matcher.accept('m');
  EXPECT_FALSE(has(matcher.allowed(), static_cast<std::size_t>(end)));
  matcher.accept('e');
  EXPECT_TRUE(matcher.can_only_end());
  EXPECT_TRUE(matcher.ended());
  // A vocabulary that lacks what must follow.
  TokenMatcher stuck(trainer::grammar_of_choice({"ab"}),
                     std::make_shared<TokenTable>(std::vector<std::string>{"a", "c"}));
  stuck.accept(0);
  EXPECT_THAT(message_of([&] { stuck.allowed(); }),
              testing::AllOf(HasSubstr("must be able to continue"), HasSubstr("none after 'a'")));
}

TEST(TokenMatcher, BoundsTheWorkForAToken) {
  // Words of one or two letters by many rules: each letter leads to twice as many places.
  std::vector<std::string> tokens;
  for (const char a : std::string("abcdefghijklmnopqrstuvwxyz"))
    for (const char b : std::string("abcdefghijklmnopqrstuvwxyz"))
      for (const char c : std::string("abcdefghijklmnopqrstuvwxyz")) tokens.push_back({a, b, c});
  const auto table = std::make_shared<TokenTable>(tokens);
  const auto message = [&](int rules) {
    std::string root = "root ::= (", others;
    for (int i = 0; i < rules; ++i) {
      const std::string name = "x" + std::to_string(i);
      root += (i ? "| " : "") + name + " ";
      others += name + " ::= [a-z] [a-z]? \"" + std::to_string(i) + "\"?\n";
    }
    TokenMatcher matcher(trainer::grammar_of_gbnf(root + ")*\n" + others), table);
    return message_of([&] { matcher.allowed(); });
  };
  EXPECT_EQ(message(2), "no error");
  EXPECT_THAT(message(60), HasSubstr("20000000 steps"));
  EXPECT_THAT(message(200), HasSubstr("at most 256 alternatives"));
}

TEST(TokenMatcher, KnowsOfTheSpaceThatIsLost) {
  const std::vector<std::string> tokens{" ", "a", " a", "  a", "b", " b"};
  const auto allowed = [&](const char* pattern, bool loses, bool begins) {
    const auto masks = std::make_shared<trainer::TokenMasks>(trainer::grammar_of_regex(pattern),
                                                             std::make_shared<TokenTable>(tokens, loses));
    TokenMatcher matcher(masks, {}, begins);
    std::string ids;
    for (std::size_t id = 0; id < tokens.size(); ++id)
      if (has(matcher.allowed(), id)) {
        ids += std::to_string(id);
        TokenMatcher(matcher).accept(static_cast<std::int32_t>(id));
      }
    return ids;
  };
  EXPECT_EQ(allowed("a", false, true), "1");
  EXPECT_EQ(allowed("a", true, false), "1");
  EXPECT_EQ(allowed("a", true, true), "012");
  EXPECT_EQ(allowed(" a", true, false), "02");
  EXPECT_EQ(allowed(" a", true, true), "03");
  EXPECT_EQ(allowed(" ?a", true, true), "0123");
}

TEST(TokenTable, HasTheBytesOfATokenizer) {
  const auto bytes = trainer::byte_tokenizer();
  const auto table = trainer::token_table(*bytes, 260);
  EXPECT_EQ(table->size(), 260u);
  EXPECT_FALSE(table->loses_first_space());
  EXPECT_EQ(table->bytes(0), "") << "the end-of-text token";
  for (std::int32_t id = 1; id < 256; ++id)
    EXPECT_EQ(table->bytes(id), std::string(1, static_cast<char>(id)));
  EXPECT_EQ(table->bytes(256), "");
  EXPECT_EQ(table->bytes(-1), "");
  // Over characters with a fallback to bytes, as Llama 2's: a first space is lost, a special token has no text.
  const auto llama = trainer::parse_tokenizer_json(
      R"({"model":{"type":"BPE","byte_fallback":true,"vocab":{"<s>":0,"▁":1,"a":2,"▁a":3,"<0xC3>":4,"é":5},"merges":["▁ a"]},
          "added_tokens":[{"id":0,"content":"<s>","special":true}],
          "normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
          "decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},
                     {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}})",
      "tokenizer", false);
  const auto pieces = trainer::token_table(*llama, 6);
  EXPECT_TRUE(pieces->loses_first_space());
  const std::vector<std::string> expected{"", " ", "a", " a", "\xc3", "é"};
  for (std::size_t id = 0; id < expected.size(); ++id)
    EXPECT_EQ(pieces->bytes(static_cast<std::int32_t>(id)), expected[id]) << id;
}

// Of the recipe `tiny`, whose tokens are bytes.
struct ConstrainedTexts {
  std::vector<std::string> texts;
  std::vector<trainer::FinishReason> reasons;
  std::int64_t preemptions = 0;
};
ConstrainedTexts constrained_texts(TinyModel& model, const trainer::EngineOptions& options,
                                   const trainer::SharedGrammar& grammar, int count) {
  trainer::Engine engine = model.engine(options);
  const auto masks = std::make_shared<trainer::TokenMasks>(
      grammar, trainer::token_table(*trainer::byte_tokenizer(), engine.vocabulary()));
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  for (int i = 0; i < count; ++i) {
    trainer::Request request;
    request.prompt = random_tokens(3 + i % 9, static_cast<std::uint64_t>(i));
    request.sampler = {.temperature = i % 3 ? 1.0 : 0.0,
                       .top_k = i % 3 == 1 ? 5 : 0,
                       .presence_penalty = 0.5,
                       .seed = static_cast<std::uint64_t>(i)};
    request.max_tokens = 1000;
    if (i % 2) request.end_tokens = {0};
    request.constraint = std::make_shared<TokenMatcher>(masks, request.end_tokens, false);
    heard.push_back(send(engine, request));
  }
  finish_all(engine);
  ConstrainedTexts result;
  for (const auto& each : heard) {
    result.reasons.push_back(each->reason());
    EXPECT_EQ(each->error, "");
    std::string text;
    for (const std::int32_t id : each->ids())
      if (id != 0) text += static_cast<char>(id);
    result.texts.push_back(text);
  }
  result.preemptions = engine.counters().preemptions;
  return result;
}

TEST(ConstrainedEngine, WritesValidDocumentsAlsoWhenTextsArePreempted) {
  TinyModel model;
  const trainer::SharedGrammar grammar = trainer::grammar_of_json_schema(Json::parse(
      R"({"type":"object","properties":{"k":{"enum":["red","blue"]},"n":{"type":"integer","minimum":-99,"maximum":99}},"required":["k","n"]})"));
  const ConstrainedTexts roomy =
      constrained_texts(model, {.max_sequences = 8, .step_tokens = 32, .page_size = 4}, grammar, 50);
  const ConstrainedTexts tight = constrained_texts(
      model, {.max_sequences = 8, .step_tokens = 16, .page_size = 4, .pages = 20}, grammar, 50);
  EXPECT_EQ(roomy.preemptions, 0);
  EXPECT_GT(tight.preemptions, 0);
  EXPECT_EQ(roomy.texts, tight.texts);
  int valid = 0;
  for (std::size_t i = 0; i < roomy.texts.size(); ++i) {
    // Models of random weights can write spaces until the model's length ends.
    if (roomy.reasons[i] == trainer::FinishReason::length) continue;
    EXPECT_EQ(roomy.reasons[i], trainer::FinishReason::stop);
    const Json json = Json::parse(roomy.texts[i], nullptr, false);
    ASSERT_TRUE(json.is_object()) << roomy.texts[i];
    EXPECT_TRUE(json["k"] == "red" || json["k"] == "blue");
    EXPECT_LE(std::abs(json["n"].get<int>()), 99);
    ++valid;
  }
  EXPECT_GE(valid, 40);
}

TEST(ConstrainedEngine, EndsWithAnErrorWhereNothingIsAllowed) {
  TinyModel model;
  trainer::Engine engine = model.engine({.max_sequences = 2, .page_size = 4});
  std::vector<std::string> bytes(256);
  bytes['a'] = "a";
  trainer::Request request;
  request.prompt = {1, 2};
  request.constraint =
      std::make_shared<TokenMatcher>(trainer::grammar_of_choice({"ab"}), std::make_shared<TokenTable>(bytes));
  const std::shared_ptr<RecordedEvents> heard = send(engine, request);
  finish_all(engine);
  EXPECT_EQ(heard->reason(), trainer::FinishReason::error);
  EXPECT_THAT(heard->error, HasSubstr("must be able to continue the text"));
  EXPECT_EQ(heard->ids(), std::vector<std::int32_t>{'a'});
}

}  // namespace
}  // namespace meshloom::tests
