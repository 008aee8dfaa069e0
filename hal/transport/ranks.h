// Where the ranks of a job come from. Defined in backends/register.cpp, which knows the transports that were built.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hal/transport/transport.h"

namespace meshloom {

// The launcher that started this process as a rank of a job, by name; none = the process is alone. Throws Error for copies of the
// program that a launcher started and that cannot reach each other.
std::optional<std::string> launcher_of_ranks();
// The transport of this process in the job of a launcher. Throws Error.
std::unique_ptr<hal::Transport> connect_to_ranks();
// Runs the ranks of a job as threads of this process, and waits for all. What a rank throws ends the others, and is thrown here.
void run_ranks_as_threads(int ranks, const std::function<void(std::unique_ptr<hal::Transport>)>& body);

}  // namespace meshloom
