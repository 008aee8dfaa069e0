// The file of keys that a server takes.
#pragma once

#include <string>
#include <vector>

namespace meshloom::trainer {

// One key per line of the file of `option`; none for "". Throws Error.
std::vector<std::string> read_keys(const std::string& option, const std::string& path);

}  // namespace meshloom::trainer
