#include "trainer/compose/rule_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/message_of.h"

namespace meshloom::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::message_of;

TEST(Regex, MatchesTheWholeText) {
  const Regex hardware("(vulkan|opencl)-(rx|h)\\d{3}.*-[18]", "rule");
  EXPECT_TRUE(hardware.matches("vulkan-rx7900xtx-1"));
  EXPECT_TRUE(hardware.matches("opencl-h100-8"));
  EXPECT_FALSE(hardware.matches("opencl-h100-8x"));
  EXPECT_FALSE(hardware.matches(" opencl-h100-8"));
  EXPECT_FALSE(hardware.matches("opencl-h100-8\n"));
  EXPECT_TRUE(hardware.contained_in(" opencl-h100-8x"));
  EXPECT_FALSE(hardware.contained_in("opencl"));
  // One alternative that is shorter does not hide another that fits.
  EXPECT_TRUE(Regex("a|ab", "rule").matches("ab"));
  EXPECT_TRUE(Regex("", "rule").matches(""));
  EXPECT_FALSE(Regex("", "rule").matches("a"));
  EXPECT_TRUE(Regex("a.c", "rule").matches(std::string("a\0c", 3)));
}

// Rules were written for std::regex, ECMAScript.
TEST(Regex, ReadsTheSyntaxOfEcmaScript) {
  EXPECT_TRUE(Regex("[^]*x", "rule").matches("ab\nx"));
  EXPECT_FALSE(Regex("[]", "rule").matches("a"));
  EXPECT_TRUE(Regex("\\u0041\\x42", "rule").matches("AB"));
  EXPECT_TRUE(Regex("(?:a(?=b)|b)+", "rule").matches("abab"));
  EXPECT_TRUE(Regex("(a)|b\\1", "rule").matches("b"));
  EXPECT_FALSE(Regex("a$", "rule").contained_in("a\n"));
  EXPECT_TRUE(Regex("(mlp|attention)\\.[a-z]+", "rule").matches("mlp.gate"));
  EXPECT_TRUE(Regex("recompute\\..*", "rule").matches("recompute.x"));
}

TEST(Regex, BadPatternsAreOneError) {
  for (const char* wrong : {"(", "a)", "[a", "*a", "a{2,1}", "(?<x", "\\"})
    EXPECT_THAT(message_of([&] { Regex(wrong, "mesh_rules[0].pattern"); }),
                AllOf(HasSubstr("mesh_rules[0].pattern: must be a regular expression ("), HasSubstr(wrong)));
}

// Patterns that crashed or blocked std::regex: 30,000 parentheses overflowed the stack, the stars had 2^n
// paths.
TEST(Regex, PatternsOfOthersAreBoundedInTimeAndMemory) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of([] { Regex(std::string(30'000, '(') + std::string(30'000, ')'), "rule"); }),
              AllOf(HasSubstr("at most 10000 characters"), HasSubstr("60000 characters")));
  EXPECT_THAT(message_of([] { Regex(std::string(4000, '(') + std::string(4000, ')'), "rule"); }),
              HasSubstr("must be a regular expression"));
  EXPECT_THAT(message_of([] { Regex("((((a{1000}){1000}){1000}){1000})", "rule"); }),
              HasSubstr("must be a regular expression"));
  for (const char* slow : {"(.*)*(.*)*(.*)*(.*)*(.*)*x", "(a|aa)+$b", "((a+)+)+b", "(?R)?a*b"})
    EXPECT_THAT(message_of([&] {
                  if (Regex(slow, "rule").matches(std::string(60, 'a'))) throw Error("it", "must not match");
                  throw Error("rule", "no bounded number of steps was needed, or no match was found");
                }),
                HasSubstr("bounded number of steps"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Regex, TheMatcherRemembers) {
  Matcher matcher("a+", "rule");
  EXPECT_TRUE(matcher("aa"));
  EXPECT_FALSE(matcher("ab"));
  EXPECT_TRUE(matcher("aa"));
}

}  // namespace
}  // namespace meshloom::trainer
