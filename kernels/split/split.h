// A tensor cut into slices along its first dimension, and put together again.
#pragma once

#include <vector>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "split": input x (N, ...), floats or i32; attr rows (integer); outputs ceil(N / rows) tensors (rows,
// ...), in order, of which the last has what is left. op "concat_rows": inputs such tensors: all of as many
// rows as the first, but for the last, which may have fewer; output (N, ...). Each is the other's gradient.
std::vector<Tensor> split(Tensor x, std::int64_t rows);
Tensor concat_rows(const std::vector<Tensor>& parts);

}  // namespace meshloom::kernels
