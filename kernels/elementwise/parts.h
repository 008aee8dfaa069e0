// The pieces of the contract, one per file.
#pragma once

#include <string>
#include <vector>

#include "kernels/core/contract.h"

namespace meshloom::kernels::elementwise_parts {

// How an input follows the output: element i of the output reads element i % elements of the input.
// False where its shape is neither the output's, nor a trailing part of it, nor one element.
bool broadcasts(const Shape& input, const Shape& output);

std::vector<Tensor> gradient(const GradientArgs& args);
std::vector<Case> cases();
Case random_case(const CaseSeed& seed);

}  // namespace meshloom::kernels::elementwise_parts
