// The pieces of the contracts, one per file.
#pragma once

#include <span>
#include <vector>

#include "kernels/block_quantized/block_quantized.h"
#include "kernels/core/contract.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels::block_quantized_parts {

Contract dequantize_contract();
Contract embedding_contract();

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs);
std::vector<Case> cases();
Case random_case(const CaseSeed& seed);
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

// What the ops share. Checks the attributes `format` and `columns`, and the last dimension of input `w`; returns K.
std::int64_t require_format(const Rules& rules, int w);
// Any bytes as codes; values are in about [-1, 1].
void make_weights(const block_quantized::Format& format, std::uint64_t seed, const TensorView& into);
// The type of (rows..., K), and its attributes.
Case weights_case(std::string name, const std::string& format, Shape rows, std::int64_t columns, bool slow);
std::string random_format(std::uint64_t seed);

}  // namespace meshloom::kernels::block_quantized_parts
