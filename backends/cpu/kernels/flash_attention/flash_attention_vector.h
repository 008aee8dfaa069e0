// The vector operations of tiled attention on a tile of scores between two products.
//
// "Columns" operate on transposed scores, (keys x queries): the statistics are one per lane. "Rows" operate on
// (queries x keys).
#pragma once

#include <cstdint>

namespace meshloom::backends::cpu {

// Keys of a tile of attention in f32: tiles begin at multiples of it. It is a part of what an output's bits depend on, of which
// flash_attention and paged_attention have the same.
constexpr std::int64_t kKeyTile = 96;

// Online softmax over a tile of scores (keys x queries); `queries` is a multiple of micro_tile().columns. On entry
// row_max and row_sum are those of the keys before (-infinity and 0 at first). Scores become exp(score - row_max),
// and `rescale` becomes exp(old row_max - new row_max), the factor for all earlier sums. Scores of -infinity give exactly 0, so that
// it makes no difference whether they are in the tile: `first_key` is the place in the whole tile of the first key that is.
void softmax_columns(float* scores, std::int64_t keys, std::int64_t queries, std::int64_t stride,
                     std::int64_t first_key, float* row_max, float* row_sum, float* rescale);
// The same bits for a whole tile of scores (rows x keys), whose keys are a multiple of 16.
void softmax_tile_rows(float* scores, std::int64_t rows, std::int64_t keys, float* row_max, float* row_sum,
                       float* rescale);
// An online softmax for scores (queries x keys), in another order.
void softmax_rows(float* scores, std::int64_t queries, std::int64_t keys, std::int64_t stride, float* row_max,
                  float* row_sum, float* rescale);

// scores -> P = exp(score - lse), products (do v) -> dS = P (product - delta). lse and delta are per query.
void backward_columns(float* scores, float* products, std::int64_t keys, std::int64_t queries,
                      std::int64_t stride, const float* lse, const float* delta);
void backward_rows(float* scores, float* products, std::int64_t queries, std::int64_t keys,
                   std::int64_t stride, const float* lse, const float* delta);

// scores -> cap tanh(scores / cap); the derivative goes to `softcap_grad`, laid out like scores, unless null.
void cap_scores(float* scores, float* softcap_grad, std::int64_t rows, std::int64_t columns,
                std::int64_t stride, float cap);
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
// from[i] = high[i] + low[i], both bf16, with a relative error of 2^-17. NaN gives NaN; infinity gives infinity and
// NaN.
void split_bf16(const float* from, std::int64_t count, std::uint16_t* high, std::uint16_t* low);

}  // namespace meshloom::backends::cpu
