// What becomes of the sums of a tile of an eight-bit product.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// c = (sum + correction of its column) * a_scale of its row * b_scale of its column + bias
struct Int8Finish {
  const float *a_scales, *b_scales, *bias;  // of the tile's first row and column; bias may be null
  const std::int32_t* corrections;
  float* c;
  std::int64_t stride;
};

}  // namespace meshloom::backends::cpu
