// The OpenCL devices of this machine and what they are like.
#pragma once

#include <string>
#include <vector>

#include "backends/opencl/device/api.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {

struct Found {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  hal::DeviceInfo info;
};

// All platforms' devices, GPUs and accelerators before CPUs, else in the drivers' order. When none: fills
// `why_none`. Devices that are not usable (no compiler, big-endian, ...) are left out and named there.
std::vector<Found> list_devices(std::string& why_none);

}  // namespace meshloom::backends::opencl
