#include "trainer/compose/regex.h"

#include "hal/error.h"

namespace meshloom::trainer {

std::regex rule_regex(const std::string& pattern, const std::string& where) {
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    throw hal::Error(where, "must be a regular expression (" + std::string(error.what()) + ")",
                     "'" + pattern + "'");
  }
}

}  // namespace meshloom::trainer
