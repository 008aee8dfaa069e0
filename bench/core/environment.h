// What a number depends on besides the code: the build, the machine, the moment.
#pragma once

#include <string>

#include "bench/core/report.h"
#include "hal/device.h"

namespace meshloom::bench {

// commit, built, date, processor, clock, governor, threads, load, device, driver, runs as.
Header describe(const hal::Device& device);

// What to think of the numbers when others use the host's cores at this moment; "" when they do not.
std::string load_note();

}  // namespace meshloom::bench
