// The bits of flash_attention's input `attention_bitmask`, from an expression: a mask of any form in S T / 8 bytes.
#pragma once

#include <string>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "mask_bits"
// inputs: none; or, with the flag `positions`, q_positions (B, S) and k_positions (B, T), i32
// attrs: expr (text), read by parse_expression, with one root: key j is visible to query i where it is not 0
// for x0 = p,
//   the position of the query, and x1 = the position of the key; queries S, keys T (integers, below 2^24),
//   which stand in place of the inputs: then p = i + T - S, and the key's position is j.
// output: i32 (B or 1, 1, S, ceil(T / 32)): key j is bit j mod 32 of word j / 32; bits beyond T are 0.
// The expression is computed in f32, on every machine with the same result where each step is exact, which
// sums, products, comparisons, floor and mod of integers below 2^24 are; where a root or a quotient decides,
// machines may differ.
Tensor mask_bits(Builder& builder, const std::string& expression, std::int64_t queries, std::int64_t keys);
Tensor mask_bits(const std::string& expression, Tensor q_positions, Tensor k_positions);

struct MaskBitsDims {
  std::int64_t b, s, t;
  bool positions;
  std::int64_t words() const { return (t + 31) / 32; }  // of a query
};
MaskBitsDims mask_bits_dims(const CallView& call);

}  // namespace meshloom::kernels
