// Proof that what was enqueued ran: an OpenCL driver reports a command that was dropped, or broke off, by its event alone.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/opencl/device/api.h"

namespace meshloom::backends::opencl {

// The commands that were enqueued on an in-order queue since the host last waited for it.
class InFlight {
 public:
  // Takes the event that a clEnqueue function gave and the words for the command. Throws DeviceLost where it gave none.
  void add(cl_event event, std::string command);
  std::size_t size() const { return commands_.size(); }
  // After a wait for the queue. Throws DeviceLost naming the first command that is not complete.
  void finished();

 private:
  struct Command {
    Event event;
    std::string words;
  };
  std::vector<Command> commands_;
};

}  // namespace meshloom::backends::opencl
