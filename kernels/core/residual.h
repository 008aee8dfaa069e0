// What ops share that add a residual to their output. `residual` is its index among the inputs, or -1 where there is none.
#pragma once

#include <utility>
#include <vector>

namespace meshloom::kernels {

// The output may take the residual's place.
inline std::vector<std::pair<int, int>> residual_in_place(int residual) {
  if (residual < 0) return {};
  return {{residual, 0}};
}

}  // namespace meshloom::kernels
