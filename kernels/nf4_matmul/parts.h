// The pieces of the contract, one per file.
#pragma once

#include <span>

#include "kernels/core/contract.h"
#include "kernels/core/rules.h"
#include "kernels/nf4_matmul/nf4_matmul.h"

namespace meshloom::kernels::nf4_matmul_parts {

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
std::vector<Case> cases();
Case random_case(const CaseSeed& seed);
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

Contract unpack_contract();
Contract pack_contract();

// What both ops share. Checks the attributes `columns` and `block`.
void require_sizes(const Rules& rules, std::int64_t columns, std::int64_t block);
// Scales in f32; steps: of the rows, where they are codes.
std::vector<float> scales_of(const ConstTensorView& scales, const float* steps, std::int64_t rows,
                             std::int64_t per_row);
// Any bytes as codes; scales and steps as packing gives them. 0 is the codes, 1 the scales, 2 the steps.
void make_packed(bool twice, int part, std::uint64_t seed, const TensorView& into);

}  // namespace meshloom::kernels::nf4_matmul_parts
