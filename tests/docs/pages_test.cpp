// The pages, the examples and the help are held to the program: what they show runs, with the exit code that they state,
// and what they refer to is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <regex>

#include "tests/docs/generated.h"
#include "tests/docs/page.h"
#include "tests/docs/reference.h"
#include "tests/golden_text.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kRoot = MESHLOOM_SOURCE_DIR;

// Pages that are written by hand or generated; those of results are what was measured then.
std::vector<std::string> pages() {
  std::vector<std::string> all{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"};
  for (const char* folder : {"docs", "examples"})
    for (const std::string& page : files_below(kRoot, folder, {".md"})) all.push_back(page);
  return all;
}

std::vector<std::string> examples() {
  std::vector<std::string> files = files_below(kRoot, "examples", {".recipe", ".rules", ".jsonl", ".txt"});
  std::erase(files, "examples/out_of_tree/CMakeLists.txt");  // tests/package builds it
  return files;
}

std::string text_of(const std::string& page) { return read_text(kRoot + "/" + page); }

// --- commands

struct Shown {
  std::string page;
  PageBlock block;
  friend std::ostream& operator<<(std::ostream& out, const Shown& shown) {
    return out << shown.page << ":" << shown.block.line;
  }
};

std::vector<Shown> shown_in(const std::vector<std::string>& files, std::string (*text)(const std::string&)) {
  std::vector<Shown> all;
  for (const std::string& file : files)
    for (PageBlock& block : blocks_of(text(file))) all.push_back({file, std::move(block)});
  return all;
}

std::string name_of(const testing::TestParamInfo<Shown>& info) {
  std::string name = info.param.page + "_line" + std::to_string(info.param.block.line);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

class Block : public testing::TestWithParam<Shown> {};

TEST_P(Block, RunsAsItSays) { EXPECT_THAT(problems_of(GetParam().block), IsEmpty()) << GetParam().page; }

INSTANTIATE_TEST_SUITE_P(Pages, Block, testing::ValuesIn(shown_in(pages(), text_of)), name_of);
INSTANTIATE_TEST_SUITE_P(Examples, Block,
                         testing::ValuesIn(shown_in(examples(),
                                                    [](const std::string& file) {
                                                      return comment_of(kRoot + "/" + file);
                                                    })),
                         name_of);

TEST(Examples, EachSaysHowItIsRun) {
  ASSERT_GE(examples().size(), 5u);
  const std::string list = text_of("examples/README.md");
  for (const std::string& file : examples()) {
    const bool is_runnable = !file.ends_with(".txt");
    EXPECT_EQ(!blocks_of(comment_of(kRoot + "/" + file)).empty(), is_runnable) << file;
    EXPECT_THAT(list, HasSubstr("](" + file.substr(file.find('/') + 1) + ")"));
  }
}

// "meshloom WORD" and the names of its options, wherever they stand.
TEST(Pages, NameNoCommandAndNoOptionThatIsNot) {
  std::string help = meshloom("--help").out;
  const std::string list = help;
  for (const std::string& command : commands()) help += meshloom(command + " --help").out;
  const std::set<std::string> known = options_in(help);
  const std::regex named(R"(\bmeshloom ([a-z_]+)\b)");
  int count = 0;
  for (const std::string& file : pages()) {
    const std::string page = text_of(file);
    for (const std::string& option : options_in(page))
      EXPECT_TRUE(known.count(option)) << option << " in " << file;
    for (std::sregex_iterator it(page.begin(), page.end(), named), end; it != end; ++it, ++count)
      EXPECT_TRUE(std::regex_search(list, std::regex("\n +" + (*it)[1].str() + " ")))
          << it->str() << " in " << file;
  }
  EXPECT_GT(count, 100);
}

// Rows of tables that show a modifier: the composer of a recipe takes each.
TEST(Pages, ModifiersOfTheTablesAreModifiers) {
  const std::string page = text_of("docs/modifiers.md");
  const std::regex row(R"(\n\| `([A-Z][A-Za-z]*\{[^`]*\})` \|)");
  int count = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it, ++count) {
    const Outcome outcome = meshloom("config tiny --modify '" + (*it)[1].str() + "'");
    EXPECT_EQ(outcome.code, 0) << it->str() << outcome.err;
  }
  EXPECT_GE(count, 6);
}

TEST(Readme, SaysWhichGpusHaveRunItInItsFirstParagraph) {
  const std::string page = text_of("README.md");
  const std::size_t begin = page.find("\n\n") + 2;
  EXPECT_THAT(page.substr(begin, page.find("\n\n", begin) - begin), HasSubstr("One GPU has run it"));
}

TEST(Readme, IsShortAndLinksEveryPage) {
  const std::string page = text_of("README.md");
  EXPECT_LE(std::count(page.begin(), page.end(), '\n'), 130);
  for (const std::string& file : files_below(kRoot, "docs", {".md"})) {
    // The README of a folder of docs says what its pages are.
    const bool is_of_folder = file.starts_with("docs/cli/") || file.starts_with("docs/configuration/");
    if (is_of_folder && file != "docs/cli/README.md" && file != "docs/configuration/README.md") continue;
    EXPECT_THAT(page, HasSubstr("(" + file + ")"));
  }
}

// --- references

TEST(Pages, WhatTheyReferToIsThere) {
  for (const std::string& file : pages()) {
    const std::string page = text_of(file);
    EXPECT_THAT(broken_links(kRoot, file, page), IsEmpty());
    EXPECT_THAT(missing_paths(kRoot, file, page), IsEmpty());
    EXPECT_THAT(wrong_quotes(kRoot, file, page), IsEmpty());
  }
  for (const std::string& file : files_below(kRoot, "bench/results", {".md"}))
    EXPECT_THAT(broken_links(kRoot, file, text_of(file)), IsEmpty());
}

TEST(Pages, MessagesOfTroubleshootingAreTheProgrammes) {
  std::string sources;
  for (const char* room : {"hal", "kernels", "backends", "layers", "trainer", "bench"})
    for (const std::string& file : files_below(kRoot, room, {".cpp", ".h"})) sources += text_of(file);
  EXPECT_THAT(unknown_messages(joined_literals(sources), "docs/troubleshooting.md",
                               text_of("docs/troubleshooting.md")),
              IsEmpty());
}

// Both ways: each variable has its line, and each line its variable.
TEST(Pages, EnvironmentVariablesAreThoseThatAreRead) {
  const std::string page = text_of("docs/environment.md");
  const std::regex name(R"(MESHLOOM_[A-Z0-9_]+)");
  std::set<std::string> described;
  for (std::sregex_iterator it(page.begin(), page.end(), name), end; it != end; ++it)
    described.insert(it->str());
  EXPECT_EQ(described, variables_of(kRoot));
}

// --- pages that are made

// The pages of `folder` are those, and nothing else but what is written by hand.
void expect_pages(const std::string& folder, const std::map<std::string, std::string>& want) {
  for (const std::string& file : files_below(kRoot, folder, {".md"})) {
    if (want.count(file) || file == folder + "/README.md") continue;
    if (std::getenv("MESHLOOM_UPDATE_GOLDEN"))
      std::filesystem::remove(kRoot + "/" + file);
    else
      ADD_FAILURE() << file << " is of nothing that the program has; scripts/generate-docs removes it";
  }
  for (const auto& [file, text] : want) {
    if (std::getenv("MESHLOOM_UPDATE_GOLDEN"))
      std::filesystem::create_directories(std::filesystem::path(kRoot + "/" + file).parent_path());
    expect_golden("../" + file, text);
  }
}

TEST(Generated, ConfigurationIsWhatClassesSays) { expect_pages("docs/configuration", configuration_pages()); }
TEST(Scripts, SayWhatTheyDo) {
  int scripts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/scripts")) {
    std::string shebang, comment;
    std::ifstream file(entry.path());
    if (!std::getline(file, shebang) || !shebang.ends_with("bash")) continue;
    std::getline(file, comment);
    const Outcome outcome = tests::shell(entry.path().string() + " --help");
    EXPECT_EQ(outcome.code, 0) << entry.path() << ": " << outcome.err;
    EXPECT_EQ("# " + outcome.out.substr(0, outcome.out.find('\n')), comment) << entry.path();
    ++scripts;
  }
  EXPECT_GE(scripts, 20);
}

TEST(Generated, CommandLineIsWhatHelpSays) { expect_pages("docs/cli", command_pages()); }

// --- help

TEST(Help, OfEachCommandExitsWithZeroAndItsExamplesRun) {
  EXPECT_GE(commands().size(), 15u);
  for (const std::string& command : commands()) {
    SCOPED_TRACE(command);
    const Outcome outcome = meshloom(command + " --help");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const PageBlock block = examples_of(outcome.out);
    EXPECT_FALSE(block.commands.empty()) << outcome.out;
    EXPECT_THAT(problems_of(block), IsEmpty());
  }
}

// --- the checker

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

TEST(Checker, RunsNothingBetweenFences) {
  EXPECT_EQ(blocks_of("```sh\n    meshloom recipes\n```\n    meshloom classes\n").size(), 1u);
  EXPECT_THAT(options_in("```\n--hidden\n```\n--seen\n"), ElementsAre("--seen"));
}

// Planted: of each kind one reference that holds and one that does not.
TEST(Checker, FindsReferencesThatAreWrong) {
  const std::string page = "docs/page.md";
  EXPECT_EQ(slug("A call's `fit`, in short"), "a-calls-fit-in-short");
  EXPECT_THAT(broken_links(kRoot, page,
                           "[a](../README.md) [b](../no-such.md) `[c](no.md)`\n```\n[d](no.md)\n```\n"
                           "[e](../README.md#no-such-heading) [f](https://example.org)\n"),
              ElementsAre("docs/page.md:1: links to '../no-such.md', which is not there",
                          HasSubstr("docs/page.md:5: links to '../README.md#no-such-heading', a heading")));
  EXPECT_THAT(missing_paths(kRoot, page, "`hal/device.h`, `hal/` and `hal/no_such.h`; `halves/x`\n"),
              ElementsAre("docs/page.md:1: names 'hal/no_such.h', which is not there"));
  EXPECT_THAT(
      wrong_quotes(kRoot, page,
                   "```cpp hal/device.h\nclass Buffer\n  {\n...\nclass Executable {\n```\n"
                   "```cpp hal/device.h\nclass NoSuch {\n```\n```cpp\nint any;\n```\n"),
      ElementsAre(HasSubstr("docs/page.md:9: quotes what does not stand in hal/device.h: class NoSuch")));
  const std::string sources = joined_literals("fail(\"must be \"\n     \"whole, \\\"so\\\"\" + x, \"b\")");
  EXPECT_THAT(unknown_messages(sources, page,
                               "| `must be whole, \"so\"…b` | a |\n| `must be half` | b |\n| c | d |\n"),
              ElementsAre("docs/page.md:2: no source says 'must be half'"));
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
