// Untrusted sizes, patterns and masks, and machines with few resources: every command ends, with one line
// when it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// One line of error, in good time.
void expect_refused(const std::string& arguments, const std::string& part,
                    const std::string& before = "timeout 60") {
  const Outcome outcome = meshloom(arguments, before);
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err.substr(0, 2000);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err.substr(0, 2000);
  EXPECT_THAT(outcome.errors()[0], HasSubstr(part));
  EXPECT_LT(outcome.errors()[0].size(), 1000u);
}

// 576460752303423788 x 64 is above 2^63: what wrapped was planned as 4 MiB.
TEST(Limits, SizesThatWrapAreRefused) {
  for (const char* command : {"plan tiny --device cpu --set ", "plan tiny --device null --as h100 --set "}) {
    expect_refused(std::string(command) + "model.vocab_size=576460752303423788", "(576460752303423788, 64)");
    expect_refused(std::string(command) + "model.decoder.stack.layer.attention.head_dim=4611686018427387904",
                   "heads x head_dim");
    expect_refused(
        std::string(command) + "model.decoder.stack.layer.feed_forward.hidden_dim=9223372036854775807",
        "at most 2^48");
  }
}

TEST(Limits, PatternsOfRulesAreBounded) {
  const std::string rule = "config tiny --device cpu --rule '";
  expect_refused(
      rule + std::string(30'000, '(') + std::string(30'000, ')') + " => SetAccumulation{accumulation=2}'",
      "mesh_rules[0].pattern");
  expect_refused(rule + "(.*)*(.*)*(.*)*(.*)*(.*)*x => SetAccumulation{accumulation=2}'",
                 "bounded number of steps");
  expect_refused(
      "plan tiny --device cpu --set 'kernels=[KernelRule{op=\"(.*)*(.*)*(.*)*(.*)*[0-9][0-9]\" "
      "variant=naive}]'",
      "bounded number of steps");
}

TEST(Limits, MasksAreBounded) {
  std::string sum = "k";
  for (int i = 0; i < 8000; ++i) sum += "+" + std::to_string(i + 2) + "*q";
  expect_refused(
      "plan tiny --device cpu --set "
      "'model.decoder.stack.layer.attention.mask=MaskFunction{visible=\"" +
          sum + "\" base=Causal{}}'",
      "expression 'k+2*q+3*q+4*q");
}

#if !defined(__SANITIZE_ADDRESS__)
// A library that started threads before main() never came to an end where these found no memory.
TEST(Limits, EveryCommandEndsWithLittleMemory) {
  for (const int kib : {100'000, 150'000, 200'000, 400'000})
    for (const char* command : {"recipes", "config tiny", "profiles", "plan tiny --device cpu"}) {
      const Outcome outcome =
          meshloom(command, "MESHLOOM_THREADS=2; ulimit -v " + std::to_string(kib) + "; timeout 60");
      EXPECT_LE(outcome.code, 2) << command << " with " << kib << " KiB: " << outcome.err;
    }
}
TEST(Limits, TheProgramIsHardened) {
  std::string text;
  FILE* pipe = ::popen("readelf -Wlds --dyn-syms " MESHLOOM_BINARY " 2>/dev/null", "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 4096> piece;
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), pipe))
    text.append(piece.data(), count);
  if (::pclose(pipe) != 0) GTEST_SKIP() << "readelf is not installed";
  EXPECT_THAT(text, HasSubstr("Elf file type is DYN (Position-Independent Executable file)"));
  EXPECT_THAT(text, AllOf(HasSubstr("GNU_RELRO"), HasSubstr("BIND_NOW")));
  EXPECT_THAT(text, HasSubstr("__stack_chk_fail"));
  EXPECT_THAT(text, testing::ContainsRegex("__(memcpy|snprintf|vsnprintf|read|fprintf)_chk"))
      << "_FORTIFY_SOURCE";
  EXPECT_THAT(text, Not(testing::ContainsRegex("GNU_STACK.* RWE")));
}
#endif

}  // namespace
}  // namespace meshloom::tests
