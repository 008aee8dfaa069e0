// Features put side by side and taken apart, where one side may be shared by several rows: the parts of a key
// that all heads share (DeepSeek-AI, 2024).
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "concat": inputs a (R, A), b (R / k, B) of one float dtype, for any whole k >= 1; output (R, A +
// B): row r is a[r], then b[r / k]. op "slice_features": input x (R, D), a float dtype; attrs begin, count,
// group (integers), group divides R; output (R / group, count): the sum of group g's rows' features [begin,
// begin + count), in order. Each has gradients that the other computes.
Tensor concat(Tensor a, Tensor b);
Tensor slice_features(Tensor x, std::int64_t begin, std::int64_t count, std::int64_t group = 1);

}  // namespace meshloom::kernels
