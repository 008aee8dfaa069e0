// The environment of a measurement: the build, the machine, and its load.
#pragma once

#include <string>

#include "bench/core/report.h"
#include "hal/device.h"

namespace meshloom::bench {

// commit, built, date, processor, clock, governor, load.
Header describe_host();
// And of a device: threads, device, driver, runs as.
Header describe(const hal::Device& device);

// A warning when other programs use the host's cores at this moment; "" when they do not.
std::string load_note();

}  // namespace meshloom::bench
