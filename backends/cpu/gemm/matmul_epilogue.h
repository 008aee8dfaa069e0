// What a matmul does to a finished tile of sums while it is still in cache.
#pragma once

#include <cstdint>

#include "hal/dtype.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::backends::cpu {

struct Epilogue {
  kernels::Activation activation = kernels::Activation::none;
  const float* bias = nullptr;         // of the tile's first column, or null
  const void* residual = nullptr;      // at the tile's first element, strides as C; or null
  hal::DType dtype = hal::DType::f32;  // of C and of the residual: f32, bf16 or f16

  bool any() const {
    return activation != kernels::Activation::none || bias != nullptr || residual != nullptr;
  }
};

// C (rows x columns, rows c_stride elements apart) = activation(sums + bias) + residual, rounded to nearest,
// ties to even. `sums` may be C itself, and so may the residual: each element is read before it is written.
// On processors with AVX512_BF16, subnormal bf16 results are zeros.
void apply_epilogue(const Epilogue& epilogue, std::int64_t rows, std::int64_t columns, const float* sums,
                    std::int64_t sums_stride, void* c, std::int64_t c_stride);

}  // namespace meshloom::backends::cpu
