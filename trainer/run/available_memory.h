// How much memory the host has left for a run.
#pragma once

#include <cstdint>

namespace meshloom::trainer {

// The bytes that this process can still take without the system having to swap or to end a process: what the system says is
// available, or what the process's control groups leave, whichever is less. 0 when nothing says it.
std::int64_t available_memory();

}  // namespace meshloom::trainer
