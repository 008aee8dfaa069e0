// Wraps a transport and counts what goes over it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hal/transport/transport.h"

namespace meshloom::hal {

struct Traffic {
  std::int64_t messages = 0, bytes = 0;
  bool operator==(const Traffic&) const = default;
};

// Of one rank, by the other rank. A message counts when it is begun.
struct TrafficCount {
  std::vector<Traffic> sent, received;
};

// `into` is cleared, and must outlive the transport.
std::unique_ptr<Transport> counted(std::unique_ptr<Transport> inner, TrafficCount& into);

}  // namespace meshloom::hal
