// Holds a contract's gradient to differences of its reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"

namespace meshloom::tests {

struct GradientCheck {
  std::vector<std::string> failures;
  int coordinates = 0;  // compared
  double worst = 0;     // largest error as a part of what is allowed
};

// With random cotangents c for every output that lets one through, L = sum of c y; the gradient calls the
// contract writes are run by references and compared with four-point differences of L,
//   D4 = (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h,
// at up to 24 coordinates of each input and along two random directions of signs. Allowed are
//  - rounding of y to f32: 6 standard deviations of 1.5/h times the rounding errors of the changed c y
//  - truncation: the two-point difference is off by about |D4 - D2|, and D4 by h^2 of that; a tenth of it
//  - 1e-5 of the gradient's size, for its own f32 steps; and 6 standard deviations of rounding each part that it sums
// Inputs lie on a grid of 2^-10 and h = 2^-5, so that x + h has no rounding error; along a direction h is
// an eighth of that, since everything moves at once. The elementwise op has kinks; it is evaluated in double with
// h = 2^-17, off the kinks.
GradientCheck check_gradient(const kernels::Catalog& catalog, const std::string& op,
                             const kernels::Case& test, std::uint64_t seed);

}  // namespace meshloom::tests
