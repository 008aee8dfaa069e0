// Wraps a device and makes it slower, for tests of ranks that are not equal.
#pragma once

#include <memory>

#include "hal/device.h"

namespace meshloom::hal {

// Every submitted list takes `factor` times as long, at least 1: submit() waits for it, and then sleeps for the rest. What is
// computed is as without.
std::unique_ptr<Device> slowed(std::unique_ptr<Device> inner, double factor);

}  // namespace meshloom::hal
