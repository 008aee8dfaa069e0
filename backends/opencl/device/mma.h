// NVIDIA's tensor cores, which kernels reach by PTX within OpenCL C (mma.inc).
#pragma once

#include <string>

#include "hal/device.h"

namespace meshloom::backends::opencl {

constexpr int kWarp = 32;

// What the instruction multiplies.
hal::MatrixShape mma_shape(hal::DType in);
// The reason why the device has no such instruction for factors of this dtype, or "".
std::string unsupported_mma(const hal::DeviceInfo& target, hal::DType in);

}  // namespace meshloom::backends::opencl
