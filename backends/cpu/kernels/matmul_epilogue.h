// What a matmul does to a finished tile of sums while it is still in cache.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace meshloom::backends::cpu {

struct Epilogue {
  kernels::Activation activation = kernels::Activation::none;
  const float* bias = nullptr;      // of the tile's first column, or null
  const float* residual = nullptr;  // at the tile's first element, strides as C; or null

  bool any() const {
    return activation != kernels::Activation::none || bias != nullptr || residual != nullptr;
  }
};

// C (rows x columns, row stride c_stride) = activation(sums + bias) + residual. `sums` may be C itself, and
// so may the residual: each element is read before it is written.
void apply_epilogue(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
                    std::int64_t sums_stride, float* c, std::int64_t c_stride);

}  // namespace meshloom::backends::cpu
