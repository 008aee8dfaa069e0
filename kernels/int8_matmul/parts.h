// The pieces of the contracts, one per file.
#pragma once

#include <span>

#include "kernels/core/contract.h"
#include "kernels/int8_matmul/int8_matmul.h"

namespace meshloom::kernels::int8_matmul_parts {

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
void reference_quantize(const CallView& call, std::span<const ConstTensorView> inputs,
                        std::span<const TensorView> outputs);
void reference_dequantize(const CallView& call, std::span<const ConstTensorView> inputs,
                          std::span<const TensorView> outputs);
std::vector<Case> cases();
std::vector<Case> cases_quantize();
std::vector<Case> cases_dequantize();
Case random_case(const CaseSeed& seed);
Case random_quantize(const CaseSeed& seed);
Case random_dequantize(const CaseSeed& seed);
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);
void make_rows(const CallView& call, int index, std::uint64_t seed, const TensorView& into);
void make_codes(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

}  // namespace meshloom::kernels::int8_matmul_parts
