// The maximum of |x|, for the scales of quantization.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// NaN where any x is NaN; 0 for count 0.
float max_abs(const float* x, std::int64_t count);

}  // namespace meshloom::backends::cpu
