// What a parameter starts with, made by several threads.
#pragma once

#include <cstdint>
#include <span>

#include "layers/models/trace.h"

namespace meshloom::trainer {

// Writes all values of the parameter, or of the tensor that it is packed from: the same bits for any number of threads.
// Below 1 counts as 1.
void initial_values(const layers::ParameterInfo& info, std::uint64_t seed, int threads,
                    std::span<float> into);

}  // namespace meshloom::trainer
