#include "hal/environment.h"

#include <cmath>
#include <cstdlib>
#include <string>
#include <system_error>

#include "hal/error.h"

namespace meshloom::hal {

double number_from_environment(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !std::isfinite(value) || value < 0)
    throw Error(name, "must be a number of at least 0", std::string("'") + text + "'");
  return value;
}

std::filesystem::path temporary_directory() {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::temp_directory_path(error);
  if (!error) return directory;
  const char* named = std::getenv("TMPDIR");
  throw Error("TMPDIR", "must name a directory, for temporary files",
              named ? std::string("'") + named + "'" : error.message());
}

}  // namespace meshloom::hal
