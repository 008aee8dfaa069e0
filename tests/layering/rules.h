// Who may include whom, as a check over file texts.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace meshloom::tests {

// Path from the repository root -> text.
using Sources = std::map<std::string, std::string>;

// The C++ and device sources of the rooms below `root`.
Sources read_sources(const std::string& root);
// One sentence per violation: "layers/x.cpp:3: layers/ may include only ...; found ...".
std::vector<std::string> violations(const Sources& sources);

}  // namespace meshloom::tests
