// The pieces of the contracts, one per file.
#pragma once

#include <span>

#include "kernels/core/contract.h"
#include "kernels/grouped_matmul/grouped_matmul.h"

namespace meshloom::kernels::grouped_matmul_parts {

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
void reference_outer(const CallView& call, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs);
void reference_sum(const CallView& call, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs);

std::vector<Case> cases();
std::vector<Case> cases_outer();
std::vector<Case> cases_sum();
Case random_case(const CaseSeed& seed);
Case random_outer(const CaseSeed& seed);
Case random_sum(const CaseSeed& seed);
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

}  // namespace meshloom::kernels::grouped_matmul_parts
