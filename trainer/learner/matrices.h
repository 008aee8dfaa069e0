// Which parameters an optimizer updates as matrices.
#pragma once

#include "layers/core/axes.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

// Whether the parameter is a matrix, or has one matrix per expert.
inline bool holds_matrices(const layers::ParameterInfo& info) {
  return info.type.rank() == 2 || (info.type.rank() == 3 && info.axes.at(0) == layers::axis::kExpert);
}

}  // namespace meshloom::trainer
