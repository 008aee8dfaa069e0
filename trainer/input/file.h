// Whole files, read once.
#pragma once

#include <string>

namespace meshloom::trainer {

// Throws Error (where = `where`) for a missing path, a directory, a file that may not be read.
std::string read_file(const std::string& path, const std::string& where);

}  // namespace meshloom::trainer
