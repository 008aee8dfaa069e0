#include "trainer/cli/key_file.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "hal/error.h"
#include "trainer/io/file.h"

namespace meshloom::trainer {

constexpr std::int64_t kKeyBytes = 1 << 20;  // of the file

std::vector<std::string> read_keys(const std::string& option, const std::string& path) {
  if (path.empty()) return {};
  const std::string where = option + " '" + path + "'", text = read_file(path, where, kKeyBytes);
  std::vector<std::string> keys;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string key = text.substr(at, end - at);
    while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
    at = end + 1;
    if (key.empty()) continue;
    if (std::any_of(key.begin(), key.end(), [](char c) { return c <= 32 || c >= 127; }))
      throw Error(where, "a key must have printable ASCII characters without spaces, one key per line");
    keys.push_back(std::move(key));
  }
  if (keys.empty()) throw Error(where, "must have a key on a line", "none");
  return keys;
}

}  // namespace meshloom::trainer
