// The program that rewards answers: what it may do, and what is said of it when it does something else.
#include "trainer/rollout/reward_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "hal/error.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using trainer::RewardProgram;

bool never() { return false; }

std::vector<double> ask(RewardProgram& program, const std::vector<std::string>& lines) {
  return program.rewards(lines, never);
}

std::string refusal(const std::string& command, const std::vector<std::string>& lines, double seconds = 20) {
  RewardProgram program(command, seconds);
  try {
    ask(program, lines);
  } catch (const hal::Error& error) {
    return error.what();
  }
  return "";
}

TEST(RewardProgram, RewardsLinesInOrderAndRunsOn) {
  // It counts the lines of its whole life.
  RewardProgram program("n=0; while read -r line; do n=$((n + 1)); echo \"$n.5\"; done", 20);
  EXPECT_THAT(ask(program, {"{}", "{}"}), ElementsAre(1.5, 2.5));
  EXPECT_THAT(ask(program, {"{}"}), ElementsAre(3.5));
}

TEST(RewardProgram, ReadsAnyNumber) {
  RewardProgram program("while read -r line; do echo \"$line\"; done", 20);
  EXPECT_THAT(ask(program, {"-2", " 1e-3 ", "0", "7.25\t"}), ElementsAre(-2, 1e-3, 0, 7.25));
}

TEST(RewardProgram, ManyLongLinesDoNotBlock) {
  // More than the buffers of both directions hold.
  RewardProgram program("while read -r line; do echo 0.123456789012345678; done", 60);
  const std::vector<std::string> lines(20000, std::string(200, 'x'));
  EXPECT_EQ(ask(program, lines).size(), lines.size());
}

TEST(RewardProgram, RunsPythonAsItIsWritten) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
  RewardProgram program("python3 -c 'import sys\nfor line in sys.stdin: print(len(line) - 1)'", 20);
  EXPECT_THAT(ask(program, {"a", "bcd"}), ElementsAre(1, 3));
}

TEST(RewardProgram, ItsEndIsAnError) {
  EXPECT_THAT(refusal("read -r line; echo 1; exit 3", {"{}", "{}"}),
              AllOf(HasSubstr("--reward 'read -r line"), HasSubstr("must run as long as the run does"),
                    HasSubstr("it ended with the exit code 3")));
  EXPECT_THAT(refusal("kill -9 $$", {"{}"}), HasSubstr("it was ended by"));
  EXPECT_THAT(refusal("exec <&- >&-; sleep 100", {"{}"}), HasSubstr("it closed its input or output"));
  EXPECT_THAT(refusal("no-such-program-at-all 2>/dev/null", {"{}"}), HasSubstr("the exit code 127"));
}

TEST(RewardProgram, SaysWhatIsNoReward) {
  const auto writes = [](const std::string& text) {
    return "while read -r line; do echo '" + text + "'; done";
  };
  for (const std::string text : {"good", "nan", "inf", "1 2", "", "1,5", "0x10"})
    EXPECT_THAT(refusal(writes(text), {"{}"}),
                AllOf(HasSubstr("must write a finite number on each line"), HasSubstr("'" + text + "'")));
  EXPECT_THAT(refusal("yes 1", {"{}"}), HasSubstr("must write one line for each line that it reads"));
  EXPECT_THAT(refusal("while read -r line; do head -c 100000 /dev/zero | tr '\\0' x; done", {"{}"}),
              HasSubstr("must write a finite number"));
}

TEST(RewardProgram, SilenceIsAnError) {
  EXPECT_THAT(refusal("read -r line; echo 1; sleep 100", {"{}", "{}"}, 0.3),
              AllOf(HasSubstr("within 0.3 s"), HasSubstr("1 of 2")));
}

TEST(RewardProgram, IsInterrupted) {
  RewardProgram program("sleep 100", 100);
  EXPECT_TRUE(program.rewards(std::vector<std::string>{"{}"}, [] { return true; }).empty());
}

TEST(RewardProgram, LeavesNothingBehind) {
  const Scratch scratch;
  const std::string alive = scratch.path("alive");
  {
    RewardProgram program(
        "(while :; do date > " + alive + "; sleep 0.05; done) & while read -r line; do echo 1; done", 20);
    EXPECT_THAT(ask(program, {"{}"}), ElementsAre(1));
    while (!std::filesystem::exists(alive)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::filesystem::remove(alive);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(std::filesystem::exists(alive));
}

}  // namespace
}  // namespace meshloom::tests
