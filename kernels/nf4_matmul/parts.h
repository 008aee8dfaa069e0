// The pieces of the contract, one per file.
#pragma once

#include <span>

#include "kernels/contract.h"
#include "kernels/nf4_matmul/nf4_matmul.h"

namespace meshloom::kernels::nf4_matmul_parts {

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
std::vector<Case> cases();
Case random_case(std::uint64_t seed);
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

}  // namespace meshloom::kernels::nf4_matmul_parts
