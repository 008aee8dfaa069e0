// Conversions between 16-bit floats and f32, many at a time.
#pragma once

#include <cstdint>

#include "hal/dtype.h"

namespace meshloom::backends::cpu {

// Converts `count` numbers of `dtype` (f32, f16 or bf16) to f32.
void widen(const void* from, hal::DType dtype, std::int64_t count, float* into);
// Converts f32 to `dtype`, rounded to nearest, ties to even; NaN stays NaN.
void narrow(const float* from, std::int64_t count, hal::DType dtype, void* into);

}  // namespace meshloom::backends::cpu
