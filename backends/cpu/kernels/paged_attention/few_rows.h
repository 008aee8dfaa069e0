// The two products of attention for few rows of queries and a tile of kKeyTile keys, which would spend more time on copies of keys and
// values than on products. Their bits are those of micro_gemm: each sum is one chain of multiply-adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/paged_attention/row_prefetch.h"
#include "hal/dtype.h"
#include "kernels/flash_attention/mask.h"

namespace meshloom::backends::cpu {

// Up to so many rows are few.
constexpr std::int64_t kFewRows = 16;

// scores (rows, kKeyTile) = queries (rows, d) keys. The keys are columns: (d, kKeyTile) floats, or with `bf16_pairs`
// (d / 2, kKeyTile) words of two bf16 that are neighbours along d.
void few_row_scores(std::int64_t rows, std::int64_t d, const float* queries, const float* keys,
                    bool bf16_pairs, float* scores);

// Whether few_row_sums() takes values of so many features in this dtype.
bool has_few_row_sums(std::int64_t features, hal::DType dtype);
// sums (rows, features) += weights (rows, kKeyTile) values. Rows [shown.begin, shown.end) of `values` are pointers to rows of f32 or bf16; the
// weights of others are zeros. Rows of sums are `stride` floats apart. For each row of values a row is prefetched.
void few_row_sums(std::int64_t rows, std::int64_t features, const float* weights,
                  const std::byte* const* values, kernels::Range shown, hal::DType dtype, float* sums,
                  std::int64_t stride, RowPrefetch& prefetch);

}  // namespace meshloom::backends::cpu
