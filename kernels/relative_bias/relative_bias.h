// Attention biases that depend on the distance between query and key, from a table that learns.
#pragma once

#include <string>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "relative_bias"
// inputs: table (R, H) f32
// attrs: queries S, keys T (integers, below 2^23); row (text), read by parse_expression, with one root: the
// row of the table
//   that a pair takes, rounded down, for x0 = j - p, the distance from query i at p = i + T - S to key j.
//   Computed in f32: see mask_bits for what that makes the same everywhere.
// output: (1, H, S, T) f32, what flash_attention takes as `bias`: table[row, h], and 0 where there is no such
// row.
//
// op "relative_bias_grad": input dy (1, H, S, T) f32; attrs rows R (integer), row; output (R, H) f32: the
// sums of dy over the
//   pairs of each row, in a fixed order.
//
// Sources: relative positions by distance, Shaw et al. (2018); buckets of distances, Raffel et al., T5
// (2020).
Tensor relative_bias(Tensor table, const std::string& row, std::int64_t queries, std::int64_t keys);

// Of either op. There are S + T - 1 distances: number n stands for n - (T - 1), and is that of query i and
// key j = n - (S - 1) + i.
struct RelativeBiasDims {
  std::int64_t rows, h, s, t;
  std::int64_t distances() const { return s + t - 1; }
};
RelativeBiasDims relative_bias_dims(const CallView& call);

}  // namespace meshloom::kernels
