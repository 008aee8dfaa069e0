// Keeps parameters in 16 bits beside their f32 from step to step, where steps multiply by them in 16 bits: the optimizer writes both
// (the model weights and master weights of mixed precision, Micikevicius et al., 2018), and no step casts.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kernels/program/program.h"

namespace meshloom::trainer {

// The f32 parameters that one of these programs casts to `dtype`, and that nothing writes but one call of adamw or adamw_8bit, all of
// what this rank has of them at a time. The programs are those of an update, divided over the ranks of the mesh.
std::set<std::string> copied_parameters(const std::vector<const kernels::Program*>& programs,
                                        kernels::DType dtype);

// Makes the copies of these parameters inputs of the program, in place of the casts, and new copies outputs of those calls.
// Results keep their bits: the copy is what a cast of the parameter would be.
void keep_copies(kernels::Program& program, const std::set<std::string>& parameters, kernels::DType dtype);

}  // namespace meshloom::trainer
