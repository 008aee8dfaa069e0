// Regular expressions, choices and GBNF as grammars: what they match, what is refused, and in which time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "tests/message_of.h"
#include "trainer/inference/grammar/gbnf_grammar.h"
#include "trainer/inference/grammar/regex_grammar.h"

namespace meshloom::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using trainer::grammar_of_choice;
using trainer::grammar_of_gbnf;
using trainer::grammar_of_regex;

// All texts of up to `length` of these letters.
std::vector<std::string> all_texts(const std::string& letters, std::size_t length) {
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i].size() < length)
      for (const char c : letters) texts.push_back(texts[i] + c);
  return texts;
}

TEST(RegexGrammar, MatchesWhatTheStandardLibraryMatches) {
  for (const char* pattern : {"a*",
                              "a+b?",
                              "(a|b)*c",
                              "a{2}",
                              "a{0,2}b",
                              "a{2,}",
                              "(ab|a)(c|bc)?",
                              "[a-b]+",
                              "[^a]*",
                              "[^a-b]c",
                              ".b.",
                              "(?:a|)b",
                              "a*?b",
                              "a+?",
                              "a??b",
                              "(a*)*",
                              "(a*b*)*c",
                              "(|a)+",
                              "a|b|",
                              "((a|b){2}c){0,2}",
                              "[abc]{3}",
                              "\\w\\W?",
                              "a|bc",
                              "[\\w]a",
                              "(a|ab)(bc|c)",
                              "()",
                              "",
                              "[a-]b?",
                              "[-a]*",
                              "\\x61b",
                              "(?:a{1,2}){2}"}) {
    SCOPED_TRACE(pattern);
    const trainer::SharedGrammar grammar = grammar_of_regex(pattern);
    const std::regex expected(pattern, std::regex::ECMAScript);
    for (const std::string& text : all_texts("abc-", 5))
      EXPECT_EQ(grammar->accepts(text), std::regex_match(text, expected)) << "'" << text << "'";
  }
}

TEST(RegexGrammar, MatchesCharactersOfUnicode) {
  const auto accepts = [](const char* pattern, std::string_view text) {
    return grammar_of_regex(pattern)->accepts(text);
  };
  EXPECT_TRUE(accepts("gr[üö]n", "grün"));
  EXPECT_FALSE(accepts("gr[üö]n", "grän"));
  EXPECT_TRUE(accepts("[α-ω]+", "λογος"));
  EXPECT_FALSE(accepts("[α-ω]+", "λογοs"));
  for (const char* text : {"a", "é", "€", "😀", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(accepts(".", text)) << text;
    EXPECT_TRUE(accepts("[^b]", text)) << text;
    EXPECT_TRUE(accepts("\\S", text)) << text;
  }
  // A byte alone, an overlong form, a surrogate, above the last one, and lines.
  for (const char* text :
       {"\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\n", "\xe2\x80\xa8"})
    EXPECT_FALSE(accepts(".", text));
  EXPECT_TRUE(accepts("\\u00e9\\u{1F600}\\uD83D\\uDE00", "é😀😀"));
  EXPECT_TRUE(accepts("\\s", "\xe2\x80\xa8"));
  EXPECT_TRUE(accepts("\\d\\D\\w\\W\\t\\n\\.\\/\\-", "1é_é\t\n./-"));
  EXPECT_TRUE(accepts("^a$", "a"));
  EXPECT_TRUE(accepts("^a$|^b$", "b"));
  EXPECT_TRUE(accepts("(?<year>\\d{4})-(?P<month>\\d\\d)", "2026-11"));
}

TEST(RegexGrammar, RefusesTheRestByName) {
  const auto message = [](const std::string& pattern) {
    return message_of([&] { grammar_of_regex(pattern); });
  };
  EXPECT_THAT(message("a(?=b)"), AllOf(HasSubstr("lookaheads"), HasSubstr("(?=b"), HasSubstr("byte 1")));
  EXPECT_THAT(message("(?!b)"), HasSubstr("lookaheads"));
  EXPECT_THAT(message("(?<=b)"), HasSubstr("lookbehinds"));
  EXPECT_THAT(message("(?>b)"), HasSubstr("atomic groups"));
  EXPECT_THAT(message("(?i)b"), HasSubstr("flags"));
  EXPECT_THAT(message("(a)\\1"), HasSubstr("backreferences"));
  EXPECT_THAT(message("\\k<a>"), HasSubstr("backreferences"));
  EXPECT_THAT(message("\\bab"), HasSubstr("word boundaries"));
  EXPECT_THAT(message("\\p{L}"), HasSubstr("Unicode properties"));
  EXPECT_THAT(message("a*+"), HasSubstr("possessive"));
  EXPECT_THAT(message("a^b"), HasSubstr("^ is taken at the beginning"));
  EXPECT_THAT(message("a$b"), HasSubstr("$ is taken at the end"));
  EXPECT_THAT(message("(a$)"), HasSubstr("$ is taken at the end"));
  EXPECT_THAT(message("(a"), HasSubstr("a group must be closed"));
  EXPECT_THAT(message("a)"), HasSubstr("opened"));
  EXPECT_THAT(message("[a"), HasSubstr("a class must end"));
  EXPECT_THAT(message("[b-a]"), HasSubstr("must rise"));
  EXPECT_THAT(message("a{3,2}"), HasSubstr("bounds must rise"));
  EXPECT_THAT(message("a{x"), HasSubstr("{ must begin a repetition"));
  EXPECT_THAT(message("*a"), HasSubstr("a quantifier must follow"));
  EXPECT_THAT(message("a**"), HasSubstr("a quantifier must follow"));
  EXPECT_THAT(message("a\\"), HasSubstr("a backslash must be followed"));
  EXPECT_THAT(message("\\ud800"), HasSubstr("character of Unicode"));
  EXPECT_THAT(message("[^\\s\\S]"), HasSubstr("must match at least one text"));
  EXPECT_THAT(message("a{99999}{9}"), HasSubstr("quantifier must follow"));
  EXPECT_THAT(message("(a{999}){999}"), HasSubstr("100000 states"));
  EXPECT_THAT(message("(a|b)*a(a|b){20}"), HasSubstr("must compile"));  // 2^20 when it is made deterministic
  EXPECT_THAT(message("[" + std::string(60000, 'a') + "]{100000}"),
              HasSubstr("when repetitions are written out"));
  EXPECT_THAT(message(std::string(70000, 'a')), HasSubstr("at most 65536 bytes"));
  EXPECT_THAT(message("a\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(message(std::string(100, '(') + std::string(100, ')')), HasSubstr("at most 64 deep"));
}

TEST(ChoiceGrammar, HasTheTextsAndNoOthers) {
  const trainer::SharedGrammar grammar = grammar_of_choice({"yes", "yesterday", "no", "näh", "no"});
  for (const char* text : {"yes", "yesterday", "no", "näh"}) EXPECT_TRUE(grammar->accepts(text)) << text;
  for (const char* text : {"", "y", "yest", "nono", "n\xc3", "yesterdays"})
    EXPECT_FALSE(grammar->accepts(text)) << text;
  EXPECT_THAT(message_of([] { grammar_of_choice({}); }), HasSubstr("at least one text"));
  EXPECT_THAT(message_of([] { grammar_of_choice({"a", ""}); }), HasSubstr("no empty text"));
  std::vector<std::string> many;
  for (int i = 0; i < 3000; ++i) many.push_back("number " + std::to_string(i * i));
  const trainer::SharedGrammar large = grammar_of_choice(many);
  EXPECT_TRUE(large->accepts("number 1681"));
  EXPECT_FALSE(large->accepts("number 1682"));
}

TEST(GbnfGrammar, MatchesItsRules) {
  const trainer::SharedGrammar chess = grammar_of_gbnf(R"(
    # moves in pairs
    root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
    move ::= (pawn | nonpawn |
              castle) [+#]?   # check
    nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
    pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
    castle ::= "O-O" "-O"?
  )");
  EXPECT_TRUE(chess->accepts("1. e4 e5\n2. Nf3 Nc6\n3. O-O O-O-O+\n"));
  EXPECT_FALSE(chess->accepts("1. e4 e5\n"));
  EXPECT_FALSE(chess->accepts("1. e4 e9\n2. Nf3 Nc6\n"));
  const trainer::SharedGrammar nested = grammar_of_gbnf("root ::= \"(\" root \")\" root | \"\"");
  EXPECT_TRUE(nested->accepts("(()())()"));
  EXPECT_TRUE(nested->accepts(""));
  EXPECT_FALSE(nested->accepts("(()"));
  EXPECT_FALSE(nested->accepts("())"));
  EXPECT_TRUE(nested->accepts(std::string(3000, '(') + std::string(3000, ')')));
  const trainer::SharedGrammar counted =
      grammar_of_gbnf("root ::= a{2} \"-\"{0,1} [^a-z\\]]{1,} \"\\x41\\u00e9\\\"\"\na ::= \"x\" | \"yy\"");
  EXPECT_TRUE(counted->accepts("xyy-12Aé\""));
  EXPECT_TRUE(counted->accepts("xxÖAé\""));
  EXPECT_FALSE(counted->accepts("x-12Aé\""));
  EXPECT_FALSE(counted->accepts("xx]Aé\""));
  EXPECT_TRUE(grammar_of_gbnf("root ::= . .\n")->accepts("é\n"));
}

TEST(GbnfGrammar, RefusesWhatCannotBeRead) {
  const auto message = [](const std::string& text) { return message_of([&] { grammar_of_gbnf(text); }); };
  EXPECT_THAT(message(""), HasSubstr("must have the rule 'root'"));
  EXPECT_THAT(message("a ::= \"b\""), HasSubstr("must have the rule 'root'"));
  EXPECT_THAT(message("root ::= b"), AllOf(HasSubstr("must be defined"), HasSubstr("no rule 'b'")));
  EXPECT_THAT(message("root ::= \"a\"\nroot ::= \"b\""),
              AllOf(HasSubstr("line 2"), HasSubstr("defined once")));
  EXPECT_THAT(message("root = \"a\""), HasSubstr("followed by ::="));
  EXPECT_THAT(message("root ::= \"a"), HasSubstr("must end with a quote"));
  EXPECT_THAT(message("root ::= [a"), HasSubstr("must end with ]"));
  EXPECT_THAT(message("root ::= (\"a\""), HasSubstr("a group must be closed"));
  EXPECT_THAT(message("root ::= \"a\" ) \"b\""), HasSubstr("must end with its line"));
  EXPECT_THAT(message("root ::= \"\\q\""), HasSubstr("must be an escape"));
  EXPECT_THAT(message("root ::= [^\\x00-\\U0010ffff]"), HasSubstr("must match at least one text"));
  EXPECT_THAT(message("root ::= \"a\" root"), HasSubstr("must match at least one text"));
  // Left recursion: direct, by others, and behind what may be empty.
  EXPECT_THAT(message("root ::= root \"a\" | \"a\""),
              AllOf(HasSubstr("left recursion"), HasSubstr("root -> root")));
  EXPECT_THAT(message("root ::= a | \"x\"\na ::= b \"y\"\nb ::= root \"z\""), HasSubstr("left recursion"));
  EXPECT_THAT(message("root ::= a? root \"b\" | \"c\"\na ::= \"a\""), HasSubstr("left recursion"));
  EXPECT_THAT(message("root ::= root"), HasSubstr("left recursion"));
  EXPECT_EQ(message("root ::= (a*)*\na ::= \"\" | \"a\""),
            "no error");  // loops over what may be empty are none
}

TEST(GbnfGrammar, WithTooManyStacksFailsAtTheText) {
  // Each byte may open one of two rules, which stay open.
  const trainer::SharedGrammar grammar =
      grammar_of_gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"");
  EXPECT_TRUE(grammar->accepts("aaabcb"));
  EXPECT_THAT(message_of([&] { grammar->accepts(std::string(40, 'a')); }),
              testing::AnyOf(HasSubstr("256 alternatives"), HasSubstr("no error")));
  const trainer::SharedGrammar several =
      grammar_of_gbnf("root ::= x \"1\" | y \"2\" | \"\"\nx ::= \"a\" root\ny ::= \"a\" root");
  EXPECT_TRUE(several->accepts("aa12"));
  EXPECT_THAT(message_of([&] { several->accepts(std::string(40, 'a')); }),
              HasSubstr("at most 256 alternatives"));
}

// Changed patterns are taken or refused with an Error, and never crash.
TEST(GrammarFuzz, OfPatternsAndRules) {
  std::mt19937 random(7);
  const std::vector<std::string> seeds{
      R"((a|b[^c-e\d]){1,3}(?:x\u00e9*?|\w+)\s$)", R"(^(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.{2,}[\]\\-]$)",
      "root ::= a \"x\\n\" | [^a-z]{2,4} (b | \"\")* # c\na ::= \"a\" root?\nb ::= . [\\x41-\\u00ff]+\n"};
  const std::string letters = "()[]{}|*+?^$\\.,-:=\"#\n19ax \xc3";
  int taken = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (std::size_t edits = 1 + random() % 6; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      const char c = letters[random() % letters.size()];
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 3);
      else if (random() % 2 == 0)
        text.insert(at, 1, c);
      else
        text[at] = c;
      if (text.empty()) text = "a";
    }
    taken += message_of([&] { grammar_of_regex(text); }) == "no error";
    taken += message_of([&] { grammar_of_gbnf(text); }) == "no error";
  }
  EXPECT_GT(taken, 300);
}

}  // namespace
}  // namespace meshloom::tests
