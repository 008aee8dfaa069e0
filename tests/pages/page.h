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
// variable.
std::vector<PageBlock> blocks_of(const std::string& page);
// "meshloom ..." lines under Example or Examples of a help text.
PageBlock examples_of(const std::string& help);

// What is run in place of a command: the same with fewer steps, smaller shapes and smaller models. "" = it is
// not run.
std::string shortened(const std::string& command);

// Runs the block's commands in a new directory that holds what they read, and says what is wrong with each.
std::vector<std::string> problems_of(const PageBlock& block);

// Words that begin with "--" in the text, but those of other programs.
std::set<std::string> options_in(const std::string& text);

}  // namespace meshloom::tests
