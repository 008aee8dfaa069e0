// Wraps a transport and makes it as slow as a link.
#pragma once

#include <map>
#include <memory>

#include "hal/transport/link_model.h"
#include "hal/transport/transport.h"

namespace meshloom::hal {

// Every rank has one full-duplex port: messages leave one after another and arrive one after another, each taking bytes
// / bandwidth, and a latency passes in between. A message is held back by its sender until the last byte would have
// arrived, so it goes on only while the sender asks for its requests; nothing burns time meanwhile. What is read, and
// in which order, is as without. A rank in `slow` has a port that is so many times slower, latency included. Every rank
// must wrap its transport with the same numbers. Delays are lower bounds; the clock's sleeps add up to 0.2 ms.
std::unique_ptr<Transport> delayed(std::unique_ptr<Transport> inner, const LinkModel& link,
                                   const std::map<int, double>& slow = {});

}  // namespace meshloom::hal
