// What the kernels must compile to: bars per call and family, of ratios and counts of the code, never of time. What fails today
// is listed as known, and the list only shrinks.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace meshloom::tests {

struct Bar {
  std::string what;  // "spilled"
  bool at_least = false;
  double limit = 0;
};

// A line of bars.txt.
struct BarRow {
  int line = 0;
  std::string family, driver, call, kernel;
  std::string variant;  // that is named instead of the chosen one; "" = none is
  std::vector<Bar> bars;
  std::set<std::string> known;  // of `what`: those that the kernel fails today
};

// Lines "FAMILY | DRIVER | CALL | KERNEL | WHAT<=LIMIT WHAT>=LIMIT ... | KNOWN ...", with '#' for comments. A call may end with
// " by VARIANT". Throws std::runtime_error that names the line.
std::vector<BarRow> parse_bars(const std::string& text);

// What each pipeline of the kernel measures, by `what`.
using Measured = std::vector<std::map<std::string, double>>;

// One line per bar that fails and is not known, and per known one that no longer fails; and one when there is no such pipeline.
std::vector<std::string> broken_bars(const BarRow& row, const Measured& measured);

}  // namespace meshloom::tests
