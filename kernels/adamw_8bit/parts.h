// The parts of the contract that have files of their own.
#pragma once

#include <vector>

#include "kernels/adamw/parts.h"
#include "kernels/adamw_8bit/adamw_8bit.h"
#include "kernels/core/compare.h"
#include "kernels/core/contract.h"

namespace meshloom::kernels::adamw_8bit_parts {

using namespace adamw_parts;

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
Tolerance tolerance(const CallView& call);
Comparison judge(const CallView& call, std::span<const ConstTensorView> inputs,
                 std::span<const ConstTensorView> want, std::span<const ConstTensorView> got, int output);
std::vector<Case> cases();
Case random_case(const CaseSeed& seed);
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

}  // namespace meshloom::kernels::adamw_8bit_parts
