// The matrix units of Intel's GPUs, which kernels reach by cl_intel_subgroup_matrix_multiply_accumulate (dpas.inc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hal/device.h"

namespace meshloom::backends::opencl {

// What a subgroup of `lanes` lanes multiplies.
hal::MatrixShape dpas_shape(std::int32_t lanes, hal::DType in);
// The shape that the device has for factors of this dtype.
std::optional<hal::MatrixShape> find_dpas(const hal::DeviceInfo& target, hal::DType in);
// The reason why it has none, or "".
std::string unsupported_dpas(const hal::DeviceInfo& target, hal::DType in);

}  // namespace meshloom::backends::opencl
