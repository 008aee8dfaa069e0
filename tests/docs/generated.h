// Pages that are made from what the program says of itself. scripts/generate-docs writes them anew.
#pragma once

#include <string>

namespace meshloom::tests {

// docs/configuration.md: every class, with its fields, from `meshloom classes --json`.
std::string configuration_page();
// docs/cli.md: the help of every command.
std::string cli_page();

}  // namespace meshloom::tests
