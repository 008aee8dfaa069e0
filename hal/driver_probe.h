// Drivers are asked for their devices in a process of their own before they are loaded into this one: a driver that crashes,
// ends the process or hangs there is left out, and is named.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hal/registry.h"

namespace meshloom::hal {

// The first argument of the program when it is such a process: PROGRAM kProbeCommand BACKEND [FILE...].
constexpr const char* kProbeCommand = "__probe-drivers";

struct DriverProbe {
  // The program that is started; it must hand its arguments to answer_probe().
  std::string program = "/proc/self/exe";
  double seconds = 10;  // a driver that takes longer hangs; MESHLOOM_PROBE_SECONDS sets it, 0 = no limit
  std::function<void(const std::string&)> note;
};

// Makes the registry ask the drivers of every backend that has drivers (BackendEntry::drivers) before it uses the backend for
// the first time: all of them at once, and one by one where that fails. Those that fail are left out and noted. What was found
// is kept in the cache (disk_cache.h) until the drivers or the system's boot change, failures for an hour. Where no process can
// be started, as in a program that was given to a loader by hand, drivers are used without being asked.
void probe_drivers(Registry& registry, DriverProbe probe);

// In a process that probe_drivers() started, asks the drivers and gives the exit code; none in any other process.
std::optional<int> answer_probe(int argc, char** argv, const Registry& registry);

}  // namespace meshloom::hal
