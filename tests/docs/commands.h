// The commands of the program, as words behind "meshloom". A command that is added is added here.
#pragma once

#include <string>
#include <vector>

namespace meshloom::tests {

inline const std::vector<std::string> kCommands{
    "train",    "data",    "generate", "import",           "export",
    "plan",     "config",  "recipes",  "classes",          "devices",
    "profiles", "kernels", "bench",    "bench train_step", "bench tune"};

}  // namespace meshloom::tests
