#include "trainer/run/rank_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr const char* kForm =
    "must read RANKS:DEVICE for each device, such as \"0:vulkan:0 1:opencl:0 2-3:cpu\"";

// Throws Error unless `text` is a number or a range of numbers; [first, last].
std::pair<int, int> rank_range(const std::string& text, const std::string& where) {
  std::pair<int, int> range{-1, -1};
  const char* const end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, range.first);
  range.second = range.first;
  if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == '-')
    parsed = std::from_chars(parsed.ptr + 1, end, range.second);
  if (parsed.ec != std::errc{} || parsed.ptr != end || range.first < 0 || range.second < range.first ||
      range.second >= kMaxRanks)
    throw hal::Error(where, kForm, "'" + text + "' as ranks");
  return range;
}

}  // namespace

std::vector<RankDevice> parse_rank_devices(const std::string& text) {
  const std::string where = "--rank-devices '" + text + "'";
  std::map<int, RankDevice> devices;
  std::istringstream items(text);
  for (std::string item; items >> item;) {
    const std::size_t colon = item.find(':');
    if (colon == std::string::npos || colon + 1 == item.size())
      throw hal::Error(where, kForm, "'" + item + "'");
    RankDevice device{item.substr(colon + 1), false};
    device.indexed = device.device.find(':') != std::string::npos;
    std::istringstream ranges(item.substr(0, colon) + ",");
    for (std::string one; std::getline(ranges, one, ',');) {
      const auto [first, last] = rank_range(one, where);
      for (int rank = first; rank <= last; ++rank)
        if (const auto [other, is_new] = devices.emplace(rank, device); !is_new)
          throw hal::Error(where, fmt::format("must name one device for rank {}", rank),
                           other->second.device + " and " + device.device);
    }
  }
  if (devices.empty()) throw hal::Error(where, kForm, "none");
  std::vector<RankDevice> list;
  for (const auto& [rank, device] : devices) {
    if (rank != static_cast<int>(list.size()))
      throw hal::Error(where, fmt::format("must name a device for rank {}", list.size()), "none");
    list.push_back(device);
  }
  return list;
}

}  // namespace meshloom::trainer
