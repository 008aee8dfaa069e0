// Checks that enqueued commands ran: an OpenCL driver reports a command that was dropped or aborted only by its event.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/opencl/device/api.h"

namespace meshloom::backends::opencl {

// The commands that were enqueued on an in-order queue since the host last waited for it.
class InFlight {
 public:
  // Takes the event that a clEnqueue function returned, and the name of the command. Throws DeviceLost where it returned none.
  void add(cl_event event, std::string command);
  std::size_t size() const { return commands_.size(); }
  // To be called after a wait for the queue. Throws DeviceLost naming the first command that is not complete.
  void check_complete();

 private:
  struct Command {
    Event event;
    std::string name;
  };
  std::vector<Command> commands_;
};

}  // namespace meshloom::backends::opencl
