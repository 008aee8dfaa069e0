// Settings that the environment gives.
#pragma once

#include <filesystem>

namespace meshloom::hal {

// The variable as a number of at least 0, or `otherwise` where it is not set or empty. Throws Error (where = the variable).
double number_from_environment(const char* name, double otherwise);

// The directory for temporary files, which TMPDIR names. Throws Error (where = TMPDIR) where it is none.
std::filesystem::path temporary_directory();

}  // namespace meshloom::hal
