#include "hal/error.h"

#include <utility>

namespace meshloom::hal {
namespace {

std::string one_line(const std::string& where, const std::string& rule, const std::string& found) {
  std::string text = where + ": " + rule;
  if (!found.empty()) text += "; found " + found;
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\r' || c == '\t') {
      line += ' ';
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr const char* kDigits = "0123456789abcdef";
      line += "\\x";
      line += kDigits[byte >> 4];
      line += kDigits[byte & 15];
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

Error::Error(std::string where, std::string rule, std::string found)
    : std::runtime_error(one_line(where, rule, found)),
      where_(std::move(where)),
      rule_(std::move(rule)),
      found_(std::move(found)) {}

}  // namespace meshloom::hal
