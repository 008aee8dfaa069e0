// What a number depends on besides the code: the build, the machine, the moment.
#pragma once

#include "bench/report.h"
#include "hal/device.h"

namespace meshloom::bench {

// commit, built, date, processor, clock, governor, threads, load, device, driver, runs as.
Header describe(const hal::Device& device);

}  // namespace meshloom::bench
