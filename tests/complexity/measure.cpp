#include "tests/complexity/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

namespace meshloom::tests {
namespace {

// Longest common subsequence of lines.
int common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<int> row(b.size() + 1, 0);
  for (const std::string& line : a) {
    int corner = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const int above = row[j + 1];
      row[j + 1] = line == b[j] ? corner + 1 : std::max(above, row[j]);
      corner = above;
    }
  }
  return row.back();
}

}  // namespace

Files read_files(const std::string& directory) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path());
    std::vector<std::string>& lines = files[entry.path().filename().string()];
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  return files;
}

int changed_lines(const Files& before, const Files& after) {
  int changed = 0;
  for (const auto& [name, lines] : before) {
    const auto now = after.find(name);
    if (now == after.end()) {
      changed += static_cast<int>(lines.size());
      continue;
    }
    changed += static_cast<int>(lines.size() + now->second.size()) - 2 * common(lines, now->second);
  }
  return changed;
}

Exponents fit(const std::vector<Cell>& cells) {
  // Normal equations of three unknowns, by elimination.
  std::array<std::array<double, 4>, 3> m{};
  for (const Cell& cell : cells) {
    const std::array<double, 4> row{1, std::log(cell.hosts), std::log(cell.variants),
                                    std::log(std::max(1, cell.lines))};
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 4; ++j) m[i][j] += row[i] * row[j];
  }
  for (int i = 0; i < 3; ++i)
    for (int r = 0; r < 3; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (int j = 0; j < 4; ++j) m[r][j] -= factor * m[i][j];
    }
  return {m[1][3] / m[1][1], m[2][3] / m[2][2]};
}

}  // namespace meshloom::tests
