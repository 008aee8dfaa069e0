// What products share that add a bias and a residual as they write.
#pragma once

#include <utility>
#include <vector>

#include "kernels/core/rules.h"

namespace meshloom::kernels {

// The result (M, n) of x's dtype, of a product whose first input is x (M, ...). Inputs from `next` on are, where the attributes of
// these names are set, bias (n) f32 and residual, which is like the result. Throws Error.
inline std::vector<TensorType> infer_with_epilogue(Rules& rules, int next, std::int64_t n) {
  const TensorType result{rules[0].dtype, {rules[0].dim(0), n}};
  if (rules.flag("bias")) {
    rules.dtype(next, DType::f32);
    rules.shape(next++, {n});
  }
  if (rules.flag("residual")) {
    rules.dtype(next, result.dtype);
    rules.shape(next, result.shape);
  }
  return {result};
}

// The output may take the place of the residual, which is this input; -1 = there is none.
inline std::vector<std::pair<int, int>> residual_in_place(int residual) {
  if (residual < 0) return {};
  return {{residual, 0}};
}

}  // namespace meshloom::kernels
