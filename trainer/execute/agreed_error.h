// One error for all ranks, so that what is wrong before a job begins is told once.
#pragma once

#include <string>

#include "hal/error.h"
#include "hal/transport/transport.h"

namespace meshloom::trainer {

// What every rank of a job throws alike, so that one of them tells it.
class AgreedError : public hal::Error {
 public:
  using Error::Error;
};

// Every rank calls it with what went wrong on it, or "". Returns the same text on every rank: "" when nothing did; the
// text when all ranks have the same one; else the first, with its rank and host, and how many more ranks have one. Throws
// hal::PeerLost after `patience` seconds.
std::string agreed_error(hal::Transport& transport, const std::string& own, double patience);

}  // namespace meshloom::trainer
