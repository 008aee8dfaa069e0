// What every rank has to say, told to all.
#pragma once

#include <string>
#include <vector>

#include "hal/transport/transport.h"

namespace meshloom::trainer {

// Every rank calls it with a text of its own, of any length. Returns the texts of all ranks, on every rank. Throws
// hal::PeerLost after `patience` seconds.
std::vector<std::string> gather_texts(hal::Transport& transport, const std::string& own, double patience);

}  // namespace meshloom::trainer
