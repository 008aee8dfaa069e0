// The pieces of the contracts, one per file.
#pragma once

#include <span>

#include "kernels/core/contract.h"
#include "kernels/flash_attention/flash_attention.h"

namespace meshloom::kernels::flash_attention_parts {

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs);
void reference_bias_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs);
// A shard's part of a call whose queries and keys are cut along the sequence: sequence.cpp.
std::vector<Tensor> local(const LocalArgs& args);
std::vector<Case> cases();
std::vector<Case> cases_grad();
std::vector<Case> cases_bias_grad();
Case random_case(const CaseSeed& seed);
Case random_grad(const CaseSeed& seed);
Case random_bias_grad(const CaseSeed& seed);
// Segments, prefixes, query offsets, sinks and slopes as they occur; rows that see nothing among them.
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);
// The same; o and lse of a gradient's case belong to its other inputs.
void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

}  // namespace meshloom::kernels::flash_attention_parts
