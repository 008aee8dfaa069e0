// Attention over one tile of queries with tiles of keys streamed past it, scores kept transposed (keys x
// queries): each product then reads the tensors as they lie in memory, and softmax statistics are one per
// vector lane.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/flash_attention_mask.h"
#include "backends/cpu/kernels/matmul_micro.h"

namespace meshloom::backends::cpu {

// Queries [first, first + columns) of a tile that see at most keys [skip, skip + keys) of a key tile.
struct Stretch {
  std::int64_t first, columns, skip, keys;
};

// The forward pass of one query tile: begin, keys for each visible tile in order, finish. Uses this thread's
// scratch; turns `masks` to the row it works on.
class ForwardTile {
 public:
  ForwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks);

  void begin(std::int64_t b, std::int64_t h, std::int64_t q0);
  // Keys [k0, k0 + tile_k) as far as there are; `masked`: not every query sees all of them.
  void keys(std::int64_t k0, bool masked);
  void finish();

 private:
  const FlashWork& work_;
  const KernelArgs& args_;
  FlashMasks& masks_;
  FlashLayout at_;
  std::int64_t width_, depth_;  // queries and features of values, padded to whole panels
  std::int64_t b_ = 0, h_ = 0, q0_ = 0, rows_ = 0;
  std::vector<Stretch> stretches_;
  // beside_: per pair its bias, then what dropout multiplies it by
  float *queries_, *scores_, *values_, *sums_, *largest_, *total_, *shrink_, *beside_;
  kernels::AttentionDraw draw_{};
};

// The backward pass of (query tile, key tile) pairs: queries, then pair, then what is wanted of the pair. dk
// and dv are accumulated where the caller says, dk without the factor `scale`.
class BackwardTile {
 public:
  // `held_keys`: rows of dk and dv accumulators that dk() and dv() shall hold.
  BackwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks, std::int64_t held_keys);

  // `for_keys`: dk and dv will be wanted; `for_queries`: dq will.
  void queries(std::int64_t b, std::int64_t h, std::int64_t q0, bool for_keys, bool for_queries);
  // `logits`: what is wanted is the gradient of the logits (add_dbias) only.
  void pair(std::int64_t k0, bool masked, bool logits = false);
  void add_dq();
  // Adds to rows of t biases, one per query; `into` begins at the pair's first key.
  void add_dbias(float* into);
  void finish_dq();

  void begin_keys(std::int64_t count);  // zeroes the first `count` rows of the accumulators
  void add_dkv(std::int64_t row);       // adds the pair's to rows from `row` on
  void finish_keys(std::int64_t b, std::int64_t kv, std::int64_t k0, std::int64_t count);
  // The same into the shares of query head h (see flash_partial_dk), from key 0 on.
  void finish_head(std::int64_t b, std::int64_t h, std::int64_t count);

 private:
  const FlashWork& work_;
  const KernelArgs& args_;
  FlashMasks& masks_;
  FlashLayout at_;
  std::int64_t width_, depth_, depth_v_;  // queries, features of keys and of values, padded to whole panels
  std::int64_t b_ = 0, h_ = 0, q0_ = 0, rows_ = 0, k0_ = 0, count_ = 0;
  std::vector<Stretch> stretches_;  // of the pair
  float *queries_, *cotangents_, *query_rows_, *cotangent_rows_, *scores_, *products_, *steepness_, *keys_,
      *dq_, *dk_, *dv_, *lse_, *delta_,
      *beside_;
  kernels::AttentionDraw draw_{};
};

}  // namespace meshloom::backends::cpu
