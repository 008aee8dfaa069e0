// Which parameters are matrices to an optimizer.
#pragma once

#include "layers/core/axes.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

// A matrix, or one per expert.
inline bool holds_matrices(const layers::ParameterInfo& info) {
  return info.type.rank() == 2 || (info.type.rank() == 3 && info.axes.at(0) == layers::axis::kExpert);
}

}  // namespace meshloom::trainer
