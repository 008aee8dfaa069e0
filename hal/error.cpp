#include "hal/error.h"

#include <utility>

namespace meshloom::hal {
namespace {

std::string one_line(const std::string& where, const std::string& rule, const std::string& found) {
  std::string text = where + ": " + rule;
  if (!found.empty()) text += "; found " + found;
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

}  // namespace

Error::Error(std::string where, std::string rule, std::string found)
    : std::runtime_error(one_line(where, rule, found)),
      where_(std::move(where)),
      rule_(std::move(rule)),
      found_(std::move(found)) {}

}  // namespace meshloom::hal
