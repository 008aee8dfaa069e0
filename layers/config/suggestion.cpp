#include <algorithm>
#include <cctype>

#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

// Edits (insert, delete, replace, swap of neighbours) between two words, ignoring case.
std::size_t distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  std::size_t least = std::max<std::size_t>(1, name.size() / 3) + 1;
  if (name.size() > 200) return "";
  for (const std::string& candidate : known) {
    const std::size_t edits = distance(name, candidate);
    if (edits < least) {
      least = edits;
      best = &candidate;
    }
  }
  return best ? ", did you mean '" + *best + "'?" : "";
}

}  // namespace meshloom::layers
