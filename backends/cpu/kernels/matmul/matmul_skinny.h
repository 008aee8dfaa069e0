// Operands of a product with few rows: B is stored in rows, or B in columns and A in rows.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/matmul_work.h"

namespace meshloom::backends::cpu {

// Element (i, k) of A at a[i * a_row + k * a_col], (k, j) of B at b[k * b_row + j * b_col].
struct SkinnyBlock {
  const float* a;
  const void* b;
  hal::DType dtype;  // of B: f32, bf16 or f16
  std::int64_t k, a_row, a_col, b_row, b_col;
  float* wide = nullptr;  // `a` where it is a copy that the kernel has not reordered yet
  bool pairs = false;     // A and B are bf16 in rows of an even length, whose pairs the processor multiplies
};

}  // namespace meshloom::backends::cpu
