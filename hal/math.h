// Whole numbers rounded up to what tiles, pages and alignments need.
#pragma once

#include <cstdint>

namespace meshloom::hal {

// a / b, rounded up. a >= 0, b > 0, and a + b must not overflow.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The smallest multiple of `multiple` that is not below `value`; the same conditions.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace meshloom::hal
