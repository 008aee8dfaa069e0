// What becomes of a scaled product q.k before the softmax: the one place that knows, for the references of every op of attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace meshloom::kernels {

struct AttentionLogit {
  double soft_cap = 0;            // 0 = none
  const float* slopes = nullptr;  // (H), or none

  // Of scale q.k, for a query of head h at a position `distance` away from the key's, to either side.
  double operator()(std::int64_t h, std::int64_t distance, double x) const {
    if (soft_cap > 0) x = soft_cap * std::tanh(x / soft_cap);
    if (slopes) x -= slopes[h] * static_cast<double>(std::abs(distance));
    return x;
  }
};

// Ulps of a logit: a sum over d products of numbers of size 1, multiplied by scale, whose absolute error the exponential makes
// a relative one.
inline double logit_ulps(double scale, std::int64_t d) {
  const auto size = static_cast<double>(d);
  return 2 * std::sqrt(size) * (1 + std::abs(scale) * std::sqrt(size));
}

}  // namespace meshloom::kernels
