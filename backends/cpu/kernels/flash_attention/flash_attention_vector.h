// The vector parts of tiled attention: what happens to a tile of scores between two products.
//
// "Columns": queries side by side, keys below each other (scores transposed): statistics are one per lane.
// "Rows": one query per row, keys side by side.
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// Running softmax over a tile of scores (keys x queries); `queries` is a multiple of micro_tile().columns. On
// entry largest and total hold what the keys before gave (-infinity and 0 at first); scores become exp(score
// - largest), `shrink` the factor exp(old largest - new largest) for what was summed so far. Scores of
// -infinity give 0.
void softmax_columns(float* scores, std::int64_t keys, std::int64_t queries, std::int64_t stride,
                     float* largest, float* total, float* shrink);
// The same for scores (queries x keys).
void softmax_rows(float* scores, std::int64_t queries, std::int64_t keys, std::int64_t stride, float* largest,
                  float* total, float* shrink);

// scores -> P = exp(score - lse), products (do v) -> dS = P (product - delta). lse and delta are per query.
void backward_columns(float* scores, float* products, std::int64_t keys, std::int64_t queries,
                      std::int64_t stride, const float* lse, const float* delta);
void backward_rows(float* scores, float* products, std::int64_t queries, std::int64_t keys,
                   std::int64_t stride, const float* lse, const float* delta);

// scores -> cap tanh(scores / cap); its derivative into `steepness`, laid out like scores, unless null.
void cap_scores(float* scores, float* steepness, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                float cap);
// scores[i * stride + j] -= slope |first + i * per_row + j * per_column|
void bias_scores(float* scores, std::int64_t rows, std::int64_t columns, std::int64_t stride, float slope,
                 std::int64_t first, int per_row, int per_column);
// data[i * stride + j] *= factors[i * stride + j]
void multiply_rows(float* data, const float* factors, std::int64_t rows, std::int64_t columns,
                   std::int64_t stride);

// data[i * stride + j] += terms[i * terms_stride + j]
void add_rows(float* data, std::int64_t stride, const float* terms, std::int64_t terms_stride,
              std::int64_t rows, std::int64_t columns);

// data[i * stride + j] *= factors[i]
void scale_rows(float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                const float* factors);
// to[i] = factor * from[i]
void scaled_copy(float* to, const float* from, std::int64_t count, float factor);
float dot_product(const float* a, const float* b, std::int64_t count);
// from[i] = high[i] + low[i], bf16 numbers, but for 2^-17 of it. NaN gives NaN, infinity an infinity and NaN.
void split_bf16(const float* from, std::int64_t count, std::uint16_t* high, std::uint16_t* low);

}  // namespace meshloom::backends::cpu
