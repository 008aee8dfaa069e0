// Checks README and help texts against the program: the commands that they show run, with the exit codes that
// they state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/pages/page.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string readme() { return read_text(MESHLOOM_SOURCE_DIR "/README.md"); }

// --- README
// ----------------------------------------------------------------------------------------------------------

class ReadmeBlock : public testing::TestWithParam<PageBlock> {};

TEST_P(ReadmeBlock, RunsAsItSays) { EXPECT_THAT(problems_of(GetParam()), IsEmpty()); }

INSTANTIATE_TEST_SUITE_P(Readme, ReadmeBlock, testing::ValuesIn(blocks_of(readme())),
                         [](const auto& info) { return "Line" + std::to_string(info.param.line); });

// "meshloom WORD" and the names of its options, wherever they stand.
TEST(Readme, NamesNoCommandAndNoOptionThatIsNot) {
  const std::string page = readme(),
                    help = meshloom("--help-all").out + meshloom("bench --help").out +
                           meshloom("bench train_step --help").out + meshloom("bench tune --help").out,
                    commands = meshloom("--help").out;
  const std::set<std::string> known = options_in(help);
  for (const std::string& option : options_in(page))
    EXPECT_TRUE(known.count(option)) << option << " in README.md";
  const std::regex named(R"(\bmeshloom ([a-z_]+)\b)");
  int count = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), named), end; it != end; ++it, ++count)
    EXPECT_TRUE(std::regex_search(commands, std::regex("\n +" + (*it)[1].str() + " ")))
        << it->str() << " in README.md";
  EXPECT_GT(count, 20);
}

// Rows of tables that show a modifier: the composer of a recipe takes each.
TEST(Readme, ModifiersOfItsTablesAreModifiers) {
  const std::string page = readme();
  const std::regex row(R"(\n\| `([A-Z][A-Za-z]*\{[^`]*\})` \|)");
  int count = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it, ++count) {
    const Outcome outcome = meshloom("config tiny --modify '" + (*it)[1].str() + "'");
    EXPECT_EQ(outcome.code, 0) << it->str() << outcome.err;
  }
  EXPECT_GE(count, 6);
}

TEST(Readme, SaysThatNoGpuHasRunItInItsFirstParagraph) {
  const std::string page = readme();
  const std::size_t begin = page.find("\n\n") + 2;
  EXPECT_THAT(page.substr(begin, page.find("\n\n", begin) - begin), HasSubstr("No GPU has run it"));
}

// --- help
// ------------------------------------------------------------------------------------------------------------

class Help : public testing::TestWithParam<std::string> {};

TEST_P(Help, ExitsWithZeroAndItsExamplesRun) {
  const Outcome outcome = meshloom(GetParam() + " --help");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const PageBlock block = examples_of(outcome.out);
  EXPECT_FALSE(block.commands.empty()) << outcome.out;
  EXPECT_THAT(problems_of(block), IsEmpty());
}

const std::vector<std::string> kCommands{"train",    "data",    "generate", "import",           "export",
                                         "plan",     "config",  "classes",  "recipes",          "devices",
                                         "profiles", "kernels", "bench",    "bench train_step", "bench tune"};

INSTANTIATE_TEST_SUITE_P(Command, Help, testing::ValuesIn(kCommands), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

// A command that is added is added above.
TEST(Help, OfEveryCommandIsTested) {
  const std::string help = meshloom("--help").out;
  const std::size_t begin = help.find("Subcommands:");
  ASSERT_NE(begin, std::string::npos) << help;
  std::set<std::string> missing;
  const std::string list = help.substr(begin);
  const std::regex name(R"(\n {2}([a-z_]+) +)");
  for (std::sregex_iterator it(list.begin(), list.end(), name), end; it != end; ++it)
    if (std::find(kCommands.begin(), kCommands.end(), (*it)[1].str()) == kCommands.end())
      missing.insert((*it)[1]);
  EXPECT_THAT(missing, IsEmpty());
}

// --- the checker
// -----------------------------------------------------------------------------------------------------

TEST(Checker, ReadsCommandsAsAShellDoes) {
  const auto blocks = blocks_of(
      "text\n    meshloom recipes   # 'all'\n    meshloom train tiny --set 'a=[\n        B{}]'\n    not a "
      "command\n\n"
      "    meshloom plan tiny --as '#1'    # exits with 2\nend\n");
  ASSERT_EQ(blocks.size(), 2u);
  ASSERT_EQ(blocks[0].commands.size(), 2u);
  EXPECT_EQ(blocks[0].commands[0].text, "meshloom recipes");
  EXPECT_EQ(blocks[0].commands[1].text, "meshloom train tiny --set 'a=[\n        B{}]'");
  EXPECT_EQ(blocks[0].commands[1].line, 3);
  EXPECT_EQ(blocks[1].commands[0].text, "meshloom plan tiny --as '#1'");
  EXPECT_EQ(blocks[1].commands[0].code, 2);
}

// Planted: each of these lines is wrong, and what is right beside them is not found.
TEST(Checker, FindsWhatIsWrong) {
  const auto blocks = blocks_of(
      "    meshloom recipes\n"
      "    build/meshloom config tiny --no-such-option\n"
      "    build/meshloom config tiny    # exits with 2\n"
      "    meshloom config tiny --replace 'RMSNorm=NoSuchNorm{}'\n"
      "    meshloom config tiny --set batch=3    # exits with 0\n"
      "    meshloom nothing\n"
      "    scripts/no-such-script\n"
      "    meshloom plan llama2-7b --device null --as h100    # exits with 2\n");
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_THAT(problems_of(blocks[0]),
              ElementsAre(HasSubstr("line 2, "), HasSubstr("exits with 0 where 2 is stated"),
                          HasSubstr("NoSuchNorm"), HasSubstr("line 6, "), HasSubstr("line 7, ")));
  EXPECT_THAT(options_in("see --json, `--no-such-option` and a-- b --"),
              ElementsAre("--json", "--no-such-option"));
}

TEST(Checker, ShortensRunsAndNothingElse) {
  EXPECT_EQ(shortened("meshloom train smollm2-135m --data a --steps 500"),
            "meshloom train tiny --data a --steps 1 --sample 2 --set eval_batches=1");
  EXPECT_EQ(shortened("meshloom plan llama2-7b --device null --as h100"),
            "meshloom plan llama2-7b --device null --as h100");
  EXPECT_EQ(shortened("meshloom bench matmul --shapes '2048x2048x2048;128x49152x576:tb' --variant all"),
            "meshloom bench matmul --shapes '64x64x64;64x64x64:tb' --variant all --time-per-case 0.01");
  EXPECT_EQ(shortened("meshloom bench --model smollm2-135m"),
            "meshloom bench --model tiny --time-per-case 0.01");
  EXPECT_EQ(shortened("scripts/test"), "");
}

}  // namespace
}  // namespace meshloom::tests
