// Whole files, read once.
#pragma once

#include <string>

namespace meshloom::trainer {

// Throws Error (where = `where`) for a missing path, a directory, a file that may not be read.
std::string read_file(const std::string& path, const std::string& where);

// The descriptor of a file opened for reading, to be closed by the caller. Throws Error likewise.
int open_file(const std::string& path, const std::string& where);

}  // namespace meshloom::trainer
