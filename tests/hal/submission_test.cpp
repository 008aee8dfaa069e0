// Lists are cut into submissions that keep to the budget, leave nothing out, and follow what was measured.
#include "hal/submission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "hal/error.h"

namespace meshloom::hal {
namespace {

using Costs = std::vector<CommandCost>;
using Submissions = std::vector<Submission>;

// What is wrong with the submissions of these commands; "" = nothing.
std::string problem(const Costs& commands, const Submissions& submissions, double budget) {
  std::size_t command = 0;
  std::uint32_t part = 0;
  double seconds = 0;
  for (const Submission& submission : submissions) {
    if (submission.pieces.empty()) return "a submission without commands";
    double sum = 0;
    for (const Piece& piece : submission.pieces) {
      if (piece.command != command || piece.first != part || piece.count == 0)
        return "not in order, or left out";
      if (commands[command].alone && submission.pieces.size() > 1) return "not alone";
      sum += commands[command].seconds * piece.count / commands[command].parts;
      part += piece.count;
      if (part > commands[command].parts) return "done twice";
      if (part == commands[command].parts) ++command, part = 0;
    }
    seconds += sum;
    if (std::abs(sum - submission.seconds) > 1e-9) return "another prediction";
    const Piece& only = submission.pieces.front();
    const bool smallest =
        submission.pieces.size() == 1 &&
        (commands[only.command].alone || only.count <= (commands[only.command].parts + 255) / 256);
    if (budget > 0 && sum > budget * (1 + 1e-9) && !smallest) return "longer than the budget";
  }
  return command == commands.size() ? "" : "commands left out";
}

TEST(Submissions, KeepToTheBudgetAndLeaveNothingOut) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Costs commands(random() % 40);
    for (CommandCost& command : commands)
      command = {(random() % 4 == 0 ? 0.3 : 0.001) * static_cast<double>(random() % 100),
                 random() % 3 == 0 ? 1 : 1 + static_cast<std::uint32_t>(random() % 1000), random() % 12 == 0};
    for (const double budget : {0.0, 1e-6, 0.05, 1.0})
      ASSERT_EQ(problem(commands, cut_into_submissions(commands, budget), budget), "")
          << round << ", " << budget;
  }
}

TEST(Submissions, AreJudgedByAChecker) {
  const Costs commands{{0.02, 10, false}, {0.2, 10, false}};
  Submissions good = cut_into_submissions(commands, 0.05);
  ASSERT_EQ(problem(commands, good, 0.05), "");
  Submissions bad = good;
  bad.back().pieces.pop_back();
  EXPECT_NE(problem(commands, bad, 0.05), "");
  bad = good;
  std::swap(bad.front(), bad.back());
  EXPECT_NE(problem(commands, bad, 0.05), "");
  EXPECT_NE(problem(commands, cut_into_submissions(commands, 0), 0.05), "");
}

TEST(Submissions, AreOneWithoutABudget) {
  EXPECT_EQ(cut_into_submissions(Costs{{9, 4, false}, {9, 4, false}}, 0).size(), 1u);
  EXPECT_EQ(cut_into_submissions(Costs{{9, 4, false}, {0, 1, true}, {9, 4, false}}, 0).size(), 3u);
  EXPECT_TRUE(cut_into_submissions(Costs{}, 0.05).empty());
}

TEST(Submissions, LearnFromWhatWasMeasured) {
  ListCosts costs;
  costs.predict(0.04);
  costs.add(3, 100);
  costs.add(1, 1);
  costs.predict(0.0);
  costs.add(1, 100);
  costs.close();
  EXPECT_DOUBLE_EQ(costs.commands()[0].seconds, 0.03);
  EXPECT_DOUBLE_EQ(costs.commands()[1].seconds, 0.01);
  EXPECT_DOUBLE_EQ(costs.commands()[2].seconds, 0.0);
  Submissions cut = cut_into_submissions(costs.commands(), 0.05);
  ASSERT_EQ(cut.size(), 1u);
  // As predicted: nothing changes. Not measured: neither.
  EXPECT_FALSE(ListCosts(costs).learn(cut, std::vector{0.04}, 0.05));
  EXPECT_FALSE(ListCosts(costs).learn(cut, std::vector{-1.0}, 0.05));
  // Ten times slower: cut anew, in ten.
  ASSERT_TRUE(costs.learn(cut, std::vector{0.4}, 0.05));
  cut = cut_into_submissions(costs.commands(), 0.05);
  EXPECT_GE(cut.size(), 8u);
  EXPECT_LE(cut.size(), 11u);
  // Much faster than that: fewer again.
  std::vector<double> fast(cut.size(), 0.0001);
  bool again = false;
  for (int run = 0; run < 20 && !again; ++run) again = costs.learn(cut, fast, 0.05);
  ASSERT_TRUE(again);
  EXPECT_LT(cut_into_submissions(costs.commands(), 0.05).size(), cut.size());
}

TEST(Submissions, DescribeThemselves) {
  const Costs commands{{0.04, 1, false}, {0.04, 1, false}, {0.01, 1, false}};
  const Submissions cut = cut_into_submissions(commands, 0.05);
  const auto log = log_of("train", cut, [](std::size_t i) {
    return std::vector<std::string>{"a", "b", "c"}[i];
  });
  EXPECT_EQ(log->describe(0), "submission 1 of 2 of list 'train', 'a'");
  EXPECT_EQ(log->describe(1), "submission 2 of 2 of list 'train', from 'b' to 'c'");
}

TEST(Submissions, TakeTheirSettingsFromTheEnvironment) {
  ::setenv("MESHLOOM_SUBMISSION_MS", "20", 1);
  ::setenv("MESHLOOM_WAIT_SECONDS", "0", 1);
  const SubmissionSettings settings = SubmissionSettings::from_environment();
  EXPECT_DOUBLE_EQ(settings.budget, 0.02);
  EXPECT_LT(settings.limit_of(1), 0);
  for (const char* wrong : {"-1", "x", "3s", "nan", "inf"}) {
    ::setenv("MESHLOOM_SUBMISSION_MS", wrong, 1);
    EXPECT_THROW(SubmissionSettings::from_environment(), Error) << wrong;
  }
  ::unsetenv("MESHLOOM_SUBMISSION_MS");
  ::unsetenv("MESHLOOM_WAIT_SECONDS");
  EXPECT_GT(SubmissionSettings::from_environment().limit_of(1), 30);
}

}  // namespace
}  // namespace meshloom::hal
