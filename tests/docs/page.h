// Finds the commands that a page or a help text shows, and runs them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {

// One command of an indented block: lines up to the end of what the shell would still read on for.
struct PageCommand {
  std::string text;  // without a comment
  int code = 0;      // that it must exit with: 0, or N of a comment "exits with N"
  int line = 0;      // of the page
};

// Commands that stand together; they run in order, in one directory.
struct PageBlock {
  int line = 0;
  std::vector<PageCommand> commands;
};

// Blocks indented by four spaces whose first word is a program: meshloom, scripts/, ctest, an environment
// variable. What stands between fences (```) is not run.
std::vector<PageBlock> blocks_of(const std::string& page);
// The comment at the top of an example, as a page: lines that begin with '#', or of a .jsonl file the member "comment" of
// its first line.
std::string comment_of(const std::string& path);
// "meshloom ..." lines under Example or Examples of a help text.
PageBlock examples_of(const std::string& help);

// What is run in place of a command: the same with fewer steps, smaller shapes and smaller models. "" = it is
// not run.
std::string shortened(const std::string& command);

// Runs the block's commands in a new directory that holds what they read, and says what is wrong with each.
std::vector<std::string> problems_of(const PageBlock& block);

// Words that begin with "--" in the text, but those of other programs. Blocks between fences are left out.
std::set<std::string> options_in(const std::string& text);

}  // namespace meshloom::tests
