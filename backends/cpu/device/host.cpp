#include "backends/cpu/device/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "backends/cpu/simd/vector_info.h"
#include "hal/error.h"

namespace meshloom::backends::cpu {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "max", and everything else that is not a number, is no limit.
std::int64_t limit_in(const std::string& path) {
  const std::string text = first_line(path);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() && value > 0 ? value
                                                                 : std::numeric_limits<std::int64_t>::max();
}

// "32K", "16M" as in /sys/devices/system/cpu/cpu0/cache.
std::int64_t size_in(const std::string& path) {
  const std::string text = first_line(path);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  return value << (unit.starts_with("K") ? 10 : unit.starts_with("M") ? 20 : unit.starts_with("G") ? 30 : 0);
}

std::int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    if (first_line(folder + "level") == std::to_string(level) && first_line(folder + "type") != "Instruction")
      return size_in(folder + "size");
  }
  return 0;
}

// True where `word` is one of the comma-separated words.
bool lists(const std::string& words, std::string_view word) {
  std::istringstream stream(words);
  for (std::string each; std::getline(stream, each, ',');)
    if (each == word) return true;
  return false;
}

// The folders of this process's control group, from its own up to the root: of cgroup version 2, then of the version
// 1 controller.
std::vector<std::string> cgroup_folders(std::string_view controller) {
  std::vector<std::string> folders;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    std::string root = "/sys/fs/cgroup";
    if (!controllers.empty()) {
      if (!lists(controllers, controller)) continue;
      root.append("/").append(controller);
    }
    for (;; path = path.substr(0, path.rfind('/'))) {
      folders.push_back(root + path + (path.ends_with('/') ? "" : "/"));
      if (path.find('/') == std::string::npos || path == "/") break;
    }
  }
  folders.push_back("/sys/fs/cgroup/");
  return folders;
}

std::int64_t memory_limit() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const std::string& folder : cgroup_folders("memory"))
    bytes = std::min({bytes, limit_in(folder + "memory.max"), limit_in(folder + "memory.limit_in_bytes")});
  return bytes;
}

int usable_threads() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  double threads = sched_getaffinity(0, sizeof mask, &mask) == 0
                       ? CPU_COUNT(&mask)
                       : static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  for (const std::string& folder : cgroup_folders("cpu")) {
    std::istringstream text(first_line(folder + "cpu.max"));  // "QUOTA PERIOD" or "max PERIOD"
    double quota = 0, period = 0;
    if (text >> quota >> period && quota > 0 && period > 0)
      threads = std::min(threads, std::ceil(quota / period));
    const std::int64_t old_quota = limit_in(folder + "cpu.cfs_quota_us");
    const std::int64_t old_period = limit_in(folder + "cpu.cfs_period_us");
    if (old_quota != std::numeric_limits<std::int64_t>::max())
      threads =
          std::min(threads, std::ceil(static_cast<double>(old_quota) / static_cast<double>(old_period)));
  }
  return std::max(1, static_cast<int>(threads));
}

std::string cpuinfo(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace

Host probe_host() {
  Host host;
  host.name = cpuinfo("model name");
  if (host.name.empty()) host.name = "CPU";
  host.vendor = cpuinfo("vendor_id");
  const VectorInfo vector = vector_info();
  host.target = vector.target;
  host.lanes = vector.lanes;
  host.threads = usable_threads();
  host.memory_bytes = memory_limit();
  host.l2_bytes = cache_bytes(2);
  host.l3_bytes = cache_bytes(3);
  return host;
}

int wanted_workers(const Host& host) {
  const char* text = std::getenv("MESHLOOM_THREADS");
  if (text == nullptr || *text == '\0') return host.threads;
  const std::string_view word(text);
  const bool is_share = word.starts_with("1/");
  const std::string_view digits = is_share ? word.substr(2) : word;
  int workers = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), workers);
  if (is_share && error == std::errc() && end == word.data() + word.size() && workers > 0)
    return std::max(1, host.threads / workers);
  // More threads than cores are not faster; they are allowed for tests that compare numbers of threads.
  const int max_workers = std::max(16, 4 * host.threads);
  if (is_share || error != std::errc() || end != word.data() + word.size() || workers < 1 ||
      workers > max_workers)
    throw Error("cpu, environment variable MESHLOOM_THREADS",
                "must be a number of threads from 1 to " + std::to_string(max_workers) + " on " +
                    std::to_string(host.threads) + (host.threads == 1 ? " core" : " cores") +
                    ", or a share of the cores such as 1/4",
                "'" + std::string(word) + "'");
  return workers;
}

std::optional<CpuRates> given_rates() {
  const char* text = std::getenv("MESHLOOM_CPU_RATES");
  if (text == nullptr || *text == '\0') return std::nullopt;
  std::istringstream words(text);
  CpuRates rates;
  if (!(words >> rates.core_flops >> rates.bytes_per_second) || !(words >> std::ws).eof() ||
      !(rates.core_flops > 0) || !(rates.bytes_per_second > 0))
    throw Error("cpu, environment variable MESHLOOM_CPU_RATES",
                "must be two positive numbers, the FLOP/s of a core and the bytes per second of all, such as "
                "'5e10 2e10'",
                "'" + std::string(text) + "'");
  return rates;
}

hal::Profile host_profile(const Host& host, int workers, double flops, double bytes_per_second,
                          bool is_measured) {
  hal::Profile profile;
  profile.name = "host-cpu";
  profile.product = host.name;
  profile.kind = hal::ProfileKind::host;
  profile.memory_bytes = host.memory_bytes;
  profile.memory_bytes_per_second = bytes_per_second;
  profile.cores = workers;
  profile.scratch_bytes = host.l2_bytes > 0 ? host.l2_bytes : 256 << 10;
  profile.lanes = host.lanes;
  profile.max_workgroup = 1024;
  profile.peak_flops[hal::DType::f32] = flops;
  profile.sources = {
      {"memory_bytes", "physical memory, or the control group's limit where smaller"},
      {"memory_bytes_per_second",
       is_measured ? "measured: reading a buffer beyond the caches with all workers" : "MESHLOOM_CPU_RATES"},
      {"cores", "MESHLOOM_THREADS, or the affinity mask and the control group's quota"},
      {"scratch_bytes", host.l2_bytes > 0 ? "/sys/devices/system/cpu/cpu0/cache, level 2"
                                          : "assumed: the level 2 cache is not reported here"},
      {"lanes", "vector width of " + host.target},
      {"max_workgroup", "chosen: a work group is one loop here"},
      {"peak_flops.f32", is_measured ? "measured: independent multiply-adds in registers with all workers"
                                     : "MESHLOOM_CPU_RATES, for each of the workers"},
  };
  return profile;
}

}  // namespace meshloom::backends::cpu
