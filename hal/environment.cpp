#include "hal/environment.h"

#include <cmath>
#include <cstdlib>
#include <string>

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

}  // namespace meshloom::hal
