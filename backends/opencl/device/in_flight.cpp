#include "backends/opencl/device/in_flight.h"

#include <utility>

#include "backends/opencl/device/status.h"
#include "hal/error.h"

namespace meshloom::backends::opencl {
namespace {

constexpr const char* kRule = "a command that was enqueued must have run when the driver says it has";

}  // namespace

void InFlight::add(cl_event event, std::string command) {
  if (!event) throw hal::DeviceLost(command, kRule, "the driver took it and made no event for it");
  commands_.push_back({Event{event}, std::move(command)});
}

void InFlight::check_complete() {
  for (const Command& command : commands_) {
    const auto status_of = [&] {
      cl_int status = CL_COMPLETE;
      check(clGetEventInfo(command.event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                           nullptr),
            command.name, "clGetEventInfo");
      return status;
    };
    cl_int status = status_of();
    if (status > CL_COMPLETE) {  // events may complete later than their queue
      const cl_event event = command.event.get();
      clWaitForEvents(1, &event);
      status = status_of();
    }
    if (status != CL_COMPLETE)
      throw hal::DeviceLost(command.name, kRule, "its event ended as " + status_name(status));
  }
  commands_.clear();
}

}  // namespace meshloom::backends::opencl
