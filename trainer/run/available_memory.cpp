#include "trainer/run/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace meshloom::trainer {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// The number in a file; none where it holds "max" or cannot be read.
std::optional<std::int64_t> number_in(const std::string& file) {
  std::int64_t value = 0;
  std::ifstream stream(file);
  if (stream >> value) return value;
  return std::nullopt;
}

// The number behind a word in a file of lines "WORD NUMBER ...".
std::optional<std::int64_t> entry(const std::string& file, const std::string& word) {
  std::ifstream stream(file);
  for (std::string found; stream >> found;) {
    std::int64_t value = 0;
    if (found == word && stream >> value) return value;
  }
  return std::nullopt;
}

// What the control group (version 2) of this process and those above it leave.
std::int64_t left_by_groups() {
  std::ifstream stream("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(stream, line))
    if (line.starts_with("0::")) path = line.substr(3);
  std::int64_t left = kUnknown;
  for (;;) {
    const std::string folder = "/sys/fs/cgroup" + path;
    const auto limit = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
    // The cache of files counts as used and is given up when memory is wanted.
    const std::int64_t cache = entry(folder + "/memory.stat", "inactive_file").value_or(0);
    if (limit && used) left = std::min(left, std::max<std::int64_t>(*limit - *used + cache, 0));
    if (path.empty() || path == "/") return left;
    path.erase(path.rfind('/'));
  }
}

}  // namespace

std::int64_t available_memory() {
  const auto kibibytes = entry("/proc/meminfo", "MemAvailable:");
  const std::int64_t left = std::min(kibibytes ? *kibibytes * 1024 : kUnknown, left_by_groups());
  return left == kUnknown ? 0 : left;
}

}  // namespace meshloom::trainer
