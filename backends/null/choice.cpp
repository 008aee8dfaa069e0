#include "backends/null/choice.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::backends::null {
namespace {

constexpr const char* kCpu = "cpu";

// The backends that the device can stand for: those that were built, since their variants are what is planned with.
std::vector<std::string> stands_for() {
  std::vector<std::string> names;
#ifdef MESHLOOM_HAS_VULKAN
  names.emplace_back("vulkan");
#endif
#ifdef MESHLOOM_HAS_OPENCL
  names.emplace_back("opencl");
#endif
#ifdef MESHLOOM_HAS_CPU
  names.emplace_back(kCpu);
#endif
  return names;
}

std::string read_text(const std::string& path, const std::string& where) {
  constexpr std::uintmax_t kMaxBytes = 1 << 20;
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) throw Error(where, "must be a file that can be read", "'" + path + "': " + error.message());
  if (bytes > kMaxBytes)
    throw Error(where, "a description has at most 1 MiB", std::to_string(bytes) + " bytes");
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

hal::DeviceInfo Choice::on(const hal::Profile& profile) const {
  std::string of = backend;
  if (!driver && of.empty()) {
    const std::vector<std::string> built = stands_for();
    const bool host = profile.kind == hal::ProfileKind::host;
    of = built.empty() || (host && std::find(built.begin(), built.end(), kCpu) != built.end())
             ? kCpu
             : built.front();
  }
  hal::DeviceInfo info = hal::planned_device(driver ? *driver : hal::driver_of(of, profile.name), profile);
  info.id = name.empty() ? "null" : "null:" + name;
  return info;
}

hal::DeviceInfo Choice::own() const {
  if (driver && !driver->device.profile.name.empty()) return on(driver->device.profile);
  const bool drives = driver && !driver->profiles.empty();
  return on(hal::find_profile(drives ? driver->profiles.front() : "host-cpu"));
}

Choice choice_of(const std::string& name) {
  const std::string where = "device 'null:" + name + "'";
  const std::vector<std::string> built = stands_for();
  const auto require_built = [&](const std::string& backend) {
    if (std::find(built.begin(), built.end(), backend) == built.end())
      throw Error(where, "must stand for a backend that was built: " + hal::join(built), "'" + backend + "'");
  };
  Choice choice{name, {}, {}};
  if (name.empty()) return choice;
  if (name.find('/') != std::string::npos || name.ends_with(".json")) {
    choice.driver = hal::parse_driver(read_text(name, where), where);
  } else if (const hal::Driver* driver = hal::find_driver(name)) {
    choice.driver = *driver;
  } else {
    if (std::find(built.begin(), built.end(), name) != built.end()) {
      choice.backend = name;
      return choice;
    }
    std::vector<std::string> known = built;
    for (const hal::Driver& shipped : hal::shipped_drivers()) known.push_back(shipped.name);
    throw Error(where,
                "must name a backend or a driver (" + hal::join(known) +
                    "), or the file of a description by `meshloom devices --describe`, with a '/' in its "
                    "path or the ending .json" +
                    hal::suggestion(name, known),
                "'" + name + "'");
  }
  require_built(choice.driver->device.backend);
  return choice;
}

}  // namespace meshloom::backends::null
