// Computes the initial values of a parameter on several threads.
#pragma once

#include <cstdint>
#include <span>

#include "layers/models/trace.h"

namespace meshloom::trainer {

// Writes all values of the parameter, or of the tensor that it is quantized from. The bits do not depend on
// the number of threads; fewer than 1 count as 1.
void initial_values(const layers::ParameterInfo& info, std::uint64_t seed, int threads,
                    std::span<float> into);

}  // namespace meshloom::trainer
