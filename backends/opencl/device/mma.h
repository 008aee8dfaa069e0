// NVIDIA's tensor cores, which kernels reach by PTX within OpenCL C (mma.inc).
#pragma once

#include <cstdint>
#include <string>

#include "hal/device.h"

namespace meshloom::backends::opencl {

constexpr int kWarp = 32;

// What the instruction multiplies.
hal::MatrixShape mma_shape(hal::DType in);
// The reason why the device has no such instruction for factors of this dtype, or "".
std::string unsupported_mma(const hal::DeviceInfo& target, hal::DType in);
// The same for the instructions of a warpgroup (wgmma.inc), which compute capability 9.0 alone has.
std::string unsupported_wgmma(const hal::DeviceInfo& target, hal::DType in);
// Bytes of workgroup memory that a kernel can declare on compute capability 9.0: more than CL_DEVICE_LOCAL_MEM_SIZE says, which is the
// limit of what is passed as an argument.
constexpr std::int64_t kWgmmaLocalBytes = 226 << 10;

}  // namespace meshloom::backends::opencl
