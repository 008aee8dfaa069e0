// Which device each rank of a job opens, where they are unlike.
#pragma once

#include <string>
#include <vector>

namespace meshloom::trainer {

struct RankDevice {
  std::string device;    // BACKEND, BACKEND:INDEX or null:NAME
  bool indexed = false;  // it names one device, which several ranks may then share
};

// The devices by rank, of "0:vulkan:0 1:opencl:0 2-3,5:cpu 4:cpu": items are separated by blanks, and have ranks (numbers and
// ranges) in front of the first colon. Throws Error for another form, and for ranks that have no device or two.
std::vector<RankDevice> parse_rank_devices(const std::string& text);

}  // namespace meshloom::trainer
