// Provided by an attention to its projections.
#pragma once

#include <cstdint>

namespace meshloom::layers {

struct HeadDim {
  std::int64_t size;  // features of one head
};

}  // namespace meshloom::layers
