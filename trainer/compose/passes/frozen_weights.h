// Stores frozen weights in the 16 bits that they are multiplied in. No number of a run changes by that: each step would have
// cast the same weight to the same values.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {

// The frozen parameters in f32 that the program reads through casts to `dtype` alone, also of views of them, and as tables of embeddings
// in it.
std::set<std::string> frozen_weights(const kernels::Program& program,
                                     const std::vector<layers::ParameterInfo>& parameters,
                                     kernels::DType dtype);

// Makes these parameters of the program ones of `dtype`. Their casts to it are dropped; what reads them otherwise reads a cast
// to f32.
void store_in(kernels::DType dtype, const std::set<std::string>& names, kernels::Program& program);

}  // namespace meshloom::trainer
