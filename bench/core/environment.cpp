#include "bench/core/environment.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "bench_commit.h"

namespace meshloom::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? line : "";
}

// The lowest and highest current clock of the cores in MHz, as the system reports them.
std::string clock_text() {
  std::ifstream file("/proc/cpuinfo");
  double low = 0, high = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    const double mhz = std::strtod(line.c_str() + line.find(':') + 1, nullptr);
    low = low == 0 ? mhz : std::min(low, mhz);
    high = std::max(high, mhz);
  }
  return high > 0 ? fmt::format("{:.0f} to {:.0f} MHz now", low, high) : "unknown";
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string known(std::string text) { return text.empty() ? "unknown" : text; }

}  // namespace

Header describe_host() {
  Header header;
  header.set("commit", MESHLOOM_COMMIT);
  header.set("built", MESHLOOM_BUILT_WITH);
  header.set("date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))));
  header.set("processor", processor());
  header.set("clock", clock_text());
  header.set("governor", known(first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")));
  header.set("load", known(first_line("/proc/loadavg")));
  return header;
}

Header describe(const hal::Device& device) {
  const hal::DeviceInfo& info = device.info();
  Header header = describe_host();
  if (info.is_cpu) header.set("threads", std::to_string(info.profile.cores));
  header.set("device", fmt::format("{}: {}", info.id, info.name));
  header.set("driver", fmt::format("{}; {}", info.driver, info.api));
  header.set("runs as", info.profile.name);
  return header;
}

std::string load_note() {
  const double load = std::strtod(first_line("/proc/loadavg").c_str(), nullptr);
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  if (load < 0.5 * cores + 0.5) return "";
  return fmt::format(
      "the machine was busy before this began (load {:.1f} on {} cores): times are too long, above all those "
      "of libraries whose threads spin while they wait for each other",
      load, cores);
}

}  // namespace meshloom::bench
