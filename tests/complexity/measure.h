// Counting changed lines, and what they grow with.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace meshloom::tests {

// The files of a directory as lines, by name.
using Files = std::map<std::string, std::vector<std::string>>;
Files read_files(const std::string& directory);

// Lines taken out of or put into files that were there before; files that are new do not count.
int changed_lines(const Files& before, const Files& after);

struct Cell {
  int hosts, variants;  // N, M
  int lines;            // changed in existing files, to run every variant in every host
};

// log(lines) = c + a log N + b log M, by least squares; no line counts as one.
struct Exponents {
  double hosts, variants;  // a, b
};
Exponents fit(const std::vector<Cell>& cells);

}  // namespace meshloom::tests
