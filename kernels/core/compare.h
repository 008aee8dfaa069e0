// Holds a result to a tolerance.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/core/contract.h"

namespace meshloom::kernels {

struct Comparison {
  bool ok = true;
  std::int64_t wrong = 0;  // elements outside the tolerance
  double worst = 0;        // largest |got - want| / allowed; infinite where nothing is allowed
  std::string text;        // when !ok: the worst element, got, want, allowed, how many are wrong
};

// Both of one type; throws Error otherwise.
Comparison compare(const ConstTensorView& want, const ConstTensorView& got, const Tolerance& tolerance);

}  // namespace meshloom::kernels
