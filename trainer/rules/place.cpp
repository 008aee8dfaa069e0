#include "trainer/rules/place.h"

#include <algorithm>
#include <cctype>

namespace meshloom::trainer {

std::string located(const std::string& file, const std::map<std::string, int>& lines,
                    const std::string& message) {
  const auto end = std::find_if_not(message.begin(), message.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '[' || c == ']';
  });
  // The longest part of the path that the file has.
  for (std::string path(message.begin(), end); !path.empty();) {
    if (const auto line = lines.find(path); line != lines.end())
      return file + ":" + std::to_string(line->second) + ", " + message;
    const std::size_t last = path.find_last_of(".[");
    path.resize(last == std::string::npos ? 0 : last);
  }
  return message;
}

}  // namespace meshloom::trainer
