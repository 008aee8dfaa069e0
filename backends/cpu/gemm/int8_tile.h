// The epilogue of a tile of an int8 product.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// c = (sum + corrections[column]) * a_scales[row] * b_scales[column] + bias[column]
struct Int8Epilogue {
  const float *a_scales, *b_scales, *bias;  // from the tile's first row and column on; bias may be null
  const std::int32_t* corrections;
  float* c;
  std::int64_t stride;  // of c, in floats
};

}  // namespace meshloom::backends::cpu
