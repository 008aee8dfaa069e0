#include "backends/opencl/device/status.h"

#include <array>

#include "hal/error.h"

namespace meshloom::backends::opencl {
namespace {

struct Name {
  cl_int status;
  const char* text;
};
constexpr std::array kNames{
    Name{CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    Name{CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    Name{CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    Name{CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    Name{CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    Name{CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    Name{CL_MAP_FAILURE, "CL_MAP_FAILURE"},
    Name{CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    Name{CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    Name{CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    Name{CL_INVALID_DEVICE, "CL_INVALID_DEVICE"},
    Name{CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT"},
    Name{CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE"},
    Name{CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT"},
    Name{CL_INVALID_BINARY, "CL_INVALID_BINARY"},
    Name{CL_INVALID_BUILD_OPTIONS, "CL_INVALID_BUILD_OPTIONS"},
    Name{CL_INVALID_PROGRAM_EXECUTABLE, "CL_INVALID_PROGRAM_EXECUTABLE"},
    Name{CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
    Name{CL_INVALID_ARG_INDEX, "CL_INVALID_ARG_INDEX"},
    Name{CL_INVALID_ARG_VALUE, "CL_INVALID_ARG_VALUE"},
    Name{CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
    Name{CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    Name{CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    Name{CL_INVALID_GLOBAL_WORK_SIZE, "CL_INVALID_GLOBAL_WORK_SIZE"},
    Name{CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
};

// `more` is appended to what was found.
void check(cl_int status, const std::string& where, const std::string& call, const std::string& more) {
  if (status == CL_SUCCESS) return;
  const std::string rule = call + " must succeed", found = status_name(status) + more;
  // NVIDIA reports a crashed kernel, and Mesa a reset GPU, as an invalid queue or device.
  if (status == CL_INVALID_COMMAND_QUEUE || status == CL_DEVICE_NOT_AVAILABLE)
    throw hal::DeviceLost(where, "the device stopped answering at " + call, found);
  if (status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_HOST_MEMORY)
    throw hal::OutOfMemory(where, rule, found);
  throw hal::Error(where, rule, found);
}

}  // namespace

std::string status_name(cl_int status) {
  for (const Name& name : kNames)
    if (name.status == status) return std::string(name.text) + " (" + std::to_string(status) + ")";
  return "status " + std::to_string(status);
}

void check(cl_int status, const std::string& where, const std::string& call) {
  check(status, where, call, "");
}

void check_work(cl_int status, const std::string& where, const std::string& call,
                const std::string& messages) {
  const std::string driver = messages.empty() ? "" : "; the driver says: " + messages;
  // NVIDIA's and Intel's drivers report this after a fault, and when a kernel took too long.
  if (status == CL_OUT_OF_RESOURCES || status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    throw hal::DeviceLost(
        where,
        "the device must finish its work, and stopped before " + call +
            ": a kernel faulted or took longer than the driver allows (the system's log may tell); a "
            "smaller batch or sequence makes kernels shorter",
        status_name(status) + driver);
  check(status, where, call, driver);
}

}  // namespace meshloom::backends::opencl
