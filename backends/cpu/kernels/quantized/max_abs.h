// The largest magnitude of some numbers, for scales.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// NaN where one is NaN; 0 of none.
float largest_magnitude(const float* x, std::int64_t count);

}  // namespace meshloom::backends::cpu
