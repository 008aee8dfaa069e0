// Attention of new tokens to the keys and values that a paged cache holds of their sequences, for decoding and serving.
// Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention (2023).
#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/flash_attention/logit.h"
#include "kernels/flash_attention/mask.h"
#include "kernels/nf4_matmul/nf4.h"
#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct PagedAttentionOptions {
  double scale = 0;                  // 0 = 1/sqrt(D)
  double soft_cap = 0;               // 0 = none
  std::optional<std::int64_t> left;  // keys in front of a query's own that it sees; none = all
  Tensor sink, slopes;               // optional inputs, see below
  bool ring = false;                 // see below
};

// The rows of a pool, as they are kept.
struct PagedRows {
  Tensor rows = {};        // k_pool or v_pool, see below
  Tensor scales = {};      // of integers
  std::int64_t block = 0;  // values that share a scale, of four-bit ones
};

// op "paged_attention"
// inputs: q (N, H, D), of any float dtype, which is that of o; k_pool (P, page, KV, D) and v_pool (P, page, KV, Dv), both of one
//   float dtype, which need not be q's; H a multiple of KV; query head h reads kv head h / (H / KV). With `scaled` both are
//   instead i8, the rows of quantize_rows, or u8, those of nf4_pack: (P, page, KV, row_bytes(D)) and (..., row_bytes(Dv)).
//   With values_in_keys there is no v_pool: the values are the first Dv <= D features of the keys, as those of multi-head latent
//   attention are (DeepSeek-AI, 2024).
//   page_table (R, M) i32, query_starts (R + 1) i32, lengths (R) i32: sequence r has lengths[r] keys, and its queries are those i
//   with query_starts[r] <= i < query_starts[r + 1], which are its last tokens: query i stands at position
//   p = lengths[r] - query_starts[r + 1] + i. Key j is row j mod page of page page_table[r, j / page] of either pool.
//   Then, with `scaled`, k_scales and v_scales f32 (P, page, KV, S), where S is 1 for i8 and blocks(D, block), blocks(Dv, block) for
//   u8; with values_in_keys no v_scales. Then, each where the flag of its name is set, in this order: sink (H) f32 and slopes (H) f32, as flash_attention has them.
// attrs: scale (number); soft_cap (number > 0); left (integer >= 0): query i sees key j iff max(0, p - left) <= j <= p; without
//   left all j <= p. scaled (flag); of u8 also block, the values that share a scale. values_in_keys (flag). value_dim (integer), which
//   is Dv, of u8 and with values_in_keys. ring (flag), with a
//   left of less than M page keys: key j is row j mod page of page page_table[r, (j / page) mod M], so that lengths have no limit;
//   the caller sees to it that no key that is seen was overwritten.
// The logit of a visible pair: x = scale q.k; x = soft_cap tanh(x / soft_cap); x -= slopes[h] |p - j|. A sink is one more logit in
//   every row's softmax. Arithmetic is in f32, whatever the dtypes.
// output: o (N, H, Dv). Queries of no sequence (i < query_starts[0] or i >= query_starts[R]) have o = 0, as has one that sees no key.
// Nothing is read of table entries of pages at which no key is visible: they may be anything. query_starts must not decrease.
//   Whatever the integers hold, nothing outside the pools is read: an entry below 0 or of P and above stands for the nearest page
//   there is, and without a ring keys from M page on are not seen.
// It has no gradient.
// FLOPs: 2 N H (D + Dv) per key, of tables that are full: M page keys, or the window's.
// The two sides must be kept alike; `value_dim` is Dv. Without `values.rows` the values are the first features of the keys.
Tensor paged_attention(Tensor q, const PagedRows& keys, const PagedRows& values, std::int64_t value_dim,
                       Tensor page_table, Tensor query_starts, Tensor lengths,
                       const PagedAttentionOptions& options = {});

// What types and attributes of a call mean, decoded once for every variant.
struct PagedAttentionDims {
  enum Input : int { kQ, kKPool };

  std::int64_t n, h, d;          // queries
  std::int64_t p, page, kv, dv;  // pools
  std::int64_t r, m;             // page_table
  double scale;
  std::int64_t left = kUnlimited;
  double soft_cap = 0;  // 0 = none
  bool ring = false;
  DType pool = DType::f32;
  std::int64_t block = 0;  // of u8
  // Indices among the call's inputs, or -1. Where values are in keys, v_pool and v_scales are those of the keys.
  int v_pool, page_table, query_starts, lengths;
  int k_scales = -1, v_scales = -1, sink = -1, slopes = -1;

  std::int64_t group() const { return h / kv; }
  bool values_in_keys() const { return v_pool == kKPool; }
  // Features of a row of v_pool.
  std::int64_t value_row() const { return values_in_keys() ? d : dv; }
  std::int64_t capacity() const { return m * page; }  // keys that a row of the table has pages for
  std::int64_t longest() const {                      // keys of a sequence
    return ring ? std::numeric_limits<std::int32_t>::max() : capacity();
  }
  // The place among the pools' rows of one kv head of key j of sequence r.
  std::int64_t row_of(const std::int32_t* page_table, std::int64_t r, std::int64_t j,
                      std::int64_t kv_head) const {
    const std::int64_t at = j / page;
    return (page_of(page_table[r * m + (ring ? at % m : at)]) * page + j % page) * kv + kv_head;
  }
  // How many elements a row of this many features is kept in, and how many scales it has.
  std::int64_t stored(std::int64_t features) const {
    return pool == DType::u8 ? nf4::row_bytes(features) : features;
  }
  std::int64_t scales(std::int64_t features) const {
    return pool == DType::u8 ? nf4::blocks(features, block) : 1;
  }
  // The mask of a sequence of so many keys whose last tokens are `queries` queries.
  AttentionMask mask(std::int64_t queries, std::int64_t length) const {
    return {queries, std::clamp<std::int64_t>(length, 0, longest()), length - queries, left, 0};
  }
  // Keys that a query sees where tables are full.
  std::int64_t attended_keys() const {
    return std::min(capacity(), left < kUnlimited ? left + 1 : kUnlimited);
  }
  // The page that an entry of the table stands for.
  std::int64_t page_of(std::int32_t entry) const { return std::clamp<std::int64_t>(entry, 0, p - 1); }
};
PagedAttentionDims paged_attention_dims(const CallView& call);

// The queries [begin, end) of sequence r, whatever query_starts holds.
Range queries_of(const PagedAttentionDims& dims, const std::int32_t* query_starts, std::int64_t r);

}  // namespace meshloom::kernels
