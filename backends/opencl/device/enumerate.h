// The OpenCL devices of this machine and their properties.
#pragma once

#include <string>
#include <vector>

#include "backends/opencl/device/api.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {

struct PhysicalDevice {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  hal::DeviceInfo info;
};

// The devices of all platforms, GPUs and accelerators before CPUs, otherwise in the drivers' order. Where there is none,
// `why_none` says why. Devices that cannot be used (no compiler, big-endian, ...) are left out and named there.
std::vector<PhysicalDevice> enumerate_devices(std::string& why_none);

}  // namespace meshloom::backends::opencl
