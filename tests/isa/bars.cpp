#include "tests/isa/bars.h"

#include <fmt/format.h>

#include <sstream>
#include <stdexcept>

namespace meshloom::tests {
namespace {

std::string stripped(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

Bar bar_of(const std::string& word, int line) {
  const std::size_t at = word.find_first_of("<>");
  if (at == std::string::npos || at + 2 >= word.size() || word[at + 1] != '=')
    throw std::runtime_error(
        fmt::format("line {}: a bar must read WHAT<=LIMIT or WHAT>=LIMIT; found '{}'", line, word));
  return {word.substr(0, at), word[at] == '>', std::stod(word.substr(at + 2))};
}

}  // namespace

std::vector<BarRow> parse_bars(const std::string& text) {
  std::vector<BarRow> rows;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = stripped(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    std::vector<std::string> cells;
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find('|', begin), line.size());
      cells.push_back(stripped(line.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (cells.size() == 5) cells.emplace_back();
    if (cells.size() != 6) throw std::runtime_error(fmt::format("line {}: must have six cells", number));
    BarRow row{number, cells[0], cells[1], cells[2], cells[3], "", {}, {}};
    if (const std::size_t by = row.call.rfind(" by "); by != std::string::npos) {
      row.variant = row.call.substr(by + 4);
      row.call.resize(by);
    }
    std::set<std::string> names;
    for (const std::string& word : words(cells[4])) {
      row.bars.push_back(bar_of(word, number));
      names.insert(row.bars.back().what);
    }
    for (const std::string& word : words(cells[5])) {
      if (!names.count(word))
        throw std::runtime_error(
            fmt::format("line {}: what is known must have a bar; found '{}'", number, word));
      row.known.insert(word);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> broken_bars(const BarRow& row, const Measured& measured) {
  std::vector<std::string> broken;
  const std::string where =
      fmt::format("bars.txt:{}: {} on {}, kernel {}", row.line, row.call, row.family, row.kernel);
  if (measured.empty()) return {where + ": the call does not dispatch it any more"};
  for (const Bar& bar : row.bars) {
    bool fails = false;
    std::string found;
    for (const auto& pipeline : measured) {
      const auto value = pipeline.find(bar.what);
      const bool kept =
          value != pipeline.end() && (bar.at_least ? value->second >= bar.limit : value->second <= bar.limit);
      fails = fails || !kept;
      found += (found.empty() ? "" : ", ") +
               (value == pipeline.end() ? "nothing" : fmt::format("{:.3g}", value->second));
    }
    const bool known = row.known.count(bar.what) > 0;
    if (fails && !known)
      broken.push_back(fmt::format("{}: {} must be {} {}; found {}", where, bar.what,
                                   bar.at_least ? ">=" : "<=", bar.limit, found));
    if (!fails && known)
      broken.push_back(fmt::format("{}: {} is {} now and no longer known to fail: take it off the list",
                                   where, bar.what, found));
  }
  return broken;
}

}  // namespace meshloom::tests
