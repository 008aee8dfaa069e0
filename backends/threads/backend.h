// The ranks of a job as threads of one process: for several devices of one machine without MPI, and for tests.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hal/transport/transport.h"

namespace meshloom::backends::threads {

// The transports of a job of `ranks` ranks, one for each thread. A message is copied once, from the sender's memory to
// the receiver's, by the receiver. A transport that is destroyed leaves the job: whoever waits for it gets PeerLost, or
// JobAborted when an exception destroys it. Throws Error for fewer ranks than one.
std::vector<std::unique_ptr<hal::Transport>> make_transports(int ranks);

// Runs `body` for each rank on a thread of its own, and returns when all have ended. When one throws, the job is
// aborted, and its exception is thrown here: the first one that is not the abortion itself.
void run_ranks(int ranks, const std::function<void(std::unique_ptr<hal::Transport>)>& body);

}  // namespace meshloom::backends::threads
