// 0, 1, 2, ...
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "iota": no inputs; attr count (integer); output i32 (count).
Tensor iota(Builder& builder, std::int64_t count);

}  // namespace meshloom::kernels
