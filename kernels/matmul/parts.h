// The pieces of the contract, one per file.
#pragma once

#include <span>

#include "kernels/core/contract.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::kernels::matmul_parts {

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
std::vector<Tensor> gradient(const GradientArgs& args);
std::vector<Case> cases();
Case random_case(const CaseSeed& seed);

}  // namespace meshloom::kernels::matmul_parts
