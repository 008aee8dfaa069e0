// A test of launches that run several dispatches (hal::ExecutableSpec::fused), which a driver must pass before they are used.
#pragma once

#include <string>

#include "hal/device.h"

namespace meshloom::backends::opencl {

// What is wrong with such launches of eight, four and two dispatches on the device, or "". Does not throw.
std::string fused_launch_problem(hal::Device& device);

}  // namespace meshloom::backends::opencl
