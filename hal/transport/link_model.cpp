#include "hal/transport/link_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::hal {
namespace {

using Units = std::vector<std::pair<std::string, double>>;

const Units& times() {
  static const Units units{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  return units;
}

const Units& rates() {
  static const Units units{
      {"B/s", 1},          {"kB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
      {"KiB/s", 1024.0},   {"MiB/s", 1 << 20},  {"GiB/s", 1 << 30},  {"bit/s", 0.125},
      {"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8},
  };
  return units;
}

// A finite number at the start of `text`, and the rest.
bool read_number(const std::string& text, double& value, std::string& rest) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return false;
  rest.assign(end, text.data() + text.size());
  return true;
}

double quantity(const std::string& name, const std::string& text, const Units& units, bool zero_allowed,
                const std::string& option) {
  std::vector<std::string> known;
  for (const auto& [unit, factor] : units) known.push_back(unit);
  double value = 0, factor = 0;
  std::string unit;
  const bool is_number = read_number(text, value, unit);
  for (const auto& [each, its_factor] : units)
    if (each == unit) factor = its_factor;
  if (!is_number || factor == 0)
    throw Error(option, name + " must be a number and one of the units " + join(known), "'" + text + "'");
  if (value < 0 || (value == 0 && !zero_allowed))
    throw Error(option, name + (zero_allowed ? " must not be negative" : " must be above zero"),
                "'" + text + "'");
  return value * factor;
}

// In the largest unit of which the value has at least one, else in the smallest.
std::string with_unit(double value, const Units& units) {
  const std::pair<std::string, double>* best = nullptr;
  for (const auto& unit : units)
    if (!best || (value >= unit.second ? value < best->second || unit.second > best->second
                                       : value < best->second && unit.second < best->second))
      best = &unit;
  return fmt::format("{:.6g}{}", value / best->second, best->first);
}

}  // namespace

LinkModel parse_link(const std::string& text, const std::string& option) {
  LinkModel link;
  std::set<std::string> seen;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::vector<std::string> names{"latency", "bandwidth", "jitter"};
    if (equals == std::string::npos || std::find(names.begin(), names.end(), name) == names.end())
      throw Error(option,
                  "a link is written as latency=0.2ms bandwidth=100MB/s, with jitter=50us if wanted" +
                      suggestion(name, names),
                  "'" + word + "'");
    if (!seen.insert(name).second) throw Error(option, name + " must be given once", "'" + text + "'");
    const std::string value = word.substr(equals + 1);
    if (name == "latency") link.latency = quantity(name, value, times(), false, option);
    if (name == "bandwidth") link.bandwidth = quantity(name, value, rates(), false, option);
    if (name == "jitter") link.jitter = quantity(name, value, times(), true, option);
  }
  if (!seen.count("latency") || !seen.count("bandwidth"))
    throw Error(option, "a link must have a latency and a bandwidth, as in latency=0.2ms bandwidth=100MB/s",
                "'" + text + "'");
  return link;
}

std::string to_string(const LinkModel& link) {
  std::string text = "latency=" + with_unit(link.latency, times());
  if (link.bandwidth > 0) {
    static const Units decimal{{"B/s", 1}, {"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}};
    text += " bandwidth=" + with_unit(link.bandwidth, decimal);
  }
  if (link.jitter > 0) text += " jitter=" + with_unit(link.jitter, times());
  return text;
}

std::map<int, double> parse_slow(const std::string& text, int ranks, const std::string& option) {
  std::map<int, double> slow;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    int rank = -1;
    double factor = 0;
    std::string rest;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), rank);
    const std::string number = item.substr(static_cast<std::size_t>(end - item.data()));
    if (error != std::errc() || number.empty() || number[0] != ':' ||
        !read_number(number.substr(1), factor, rest) || !rest.empty())
      throw Error(option, "a slowed rank is written as RANK:FACTOR, such as 1:3", "'" + item + "'");
    if (rank < 0 || rank >= ranks)
      throw Error(option, fmt::format("a rank must be from 0 to {}", ranks - 1), "'" + item + "'");
    if (factor < 1) throw Error(option, "a factor must be at least 1", "'" + item + "'");
    if (!slow.emplace(rank, factor).second)
      throw Error(option, "a rank must be given once", "'" + text + "'");
  }
  if (slow.empty())
    throw Error(option, "a slowed rank is written as RANK:FACTOR, such as 1:3", "'" + text + "'");
  return slow;
}

}  // namespace meshloom::hal
