// The two halves of a tensor along one of its dimensions, and put together again.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// The elements in front of dimension d, and from it on.
std::pair<std::int64_t, std::int64_t> around(const Shape& shape, std::size_t d);
// x: floats or i32; dimension d is even. Both halves have the shape of x but for that dimension.
std::pair<Tensor, Tensor> halves(Tensor x, std::size_t d);
// The inverse.
Tensor join_halves(Tensor first, Tensor second, std::size_t d);

}  // namespace meshloom::kernels
