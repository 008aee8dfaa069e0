#include "bench/core/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshloom::bench {

std::string shortened(const std::string& text, std::size_t max_size) {
  if (text.size() <= max_size) return text;
  return text.substr(0, max_size - 3) + "...";
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths[i] == 0) continue;
      if (!line.empty()) line += "  ";
      line += left[i] ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string header_text(const Header& header, const Ceilings& ceilings) {
  std::string text;
  for (const auto& [name, value] : header.fields) text += fmt::format("{:<10} {}\n", name, value);
  return text +
         fmt::format(
             "{:<10} {:.4g} GFLOP/s{}, {:.3g} GB/s, empty dispatch {} in a list and {} alone\n{:<10} {}\n\n",
             "ceilings", ceilings.flops * 1e-9,
             ceilings.bf16_flops > 0 ? fmt::format(" ({:.4g} of bf16 products)", ceilings.bf16_flops * 1e-9)
                                     : "",
             ceilings.bytes_per_second * 1e-9, seconds_text(ceilings.dispatch_seconds),
             seconds_text(ceilings.submit_seconds), "", ceilings.how);
}

}  // namespace meshloom::bench
