// Pages that are made from what the program says of itself. scripts/generate-docs writes them anew.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace meshloom::tests {

// The words behind "meshloom" that are commands, in the order of the help: "train", ..., "bench", "bench tune".
std::vector<std::string> commands();

// Text by path. A class and a command have a page of their own, so that adding one edits none.
// docs/configuration: each class, in the folders of its interfaces, from `meshloom classes --json`.
std::map<std::string, std::string> configuration_pages();
// docs/cli: the help of each command.
std::map<std::string, std::string> command_pages();

}  // namespace meshloom::tests
