// OpenCL status codes as errors.
#pragma once

#include <string>

#include "backends/opencl/device/api.h"

namespace meshloom::backends::opencl {

std::string status_name(cl_int status);  // "CL_OUT_OF_RESOURCES (-5)"

// Throws DeviceLost, OutOfMemory or Error (by the code) unless `status` is CL_SUCCESS.
void check(cl_int status, const std::string& where, const std::string& call);
// For calls that wait for work, where CL_OUT_OF_RESOURCES means that a kernel faulted or was stopped. `messages`: what the driver
// reported to the context's callback, or "".
void check_work(cl_int status, const std::string& where, const std::string& call,
                const std::string& messages);

}  // namespace meshloom::backends::opencl
