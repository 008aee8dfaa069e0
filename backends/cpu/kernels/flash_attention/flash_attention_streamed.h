// Attention over one tile of queries with tiles of keys streamed past it, scores kept transposed (keys x
// queries): each product then reads the tensors as they lie in memory, and softmax statistics are one per
// vector lane.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_mask.h"

namespace meshloom::backends::cpu {

// Queries [first, first + columns) of a tile, of which some may be padding, that see at most keys [skip, skip
// + keys) of a key tile.
struct Stretch {
  std::int64_t first, columns, skip, keys;
};

// Keys or values of one kv head in another layout, tile by tile. Where many query tiles see them, a tile is
// made once and kept while the head stays the same; else it is made again each time.
class HeldTiles {
 public:
  // Floats of memory that `tiles` tiles take; a kept one is found by its index.
  static std::int64_t floats(bool kept, std::int64_t tiles, std::int64_t each) {
    return (kept ? tiles : 1) * each;
  }

  void hold(float* memory, bool kept, std::int64_t tiles, std::int64_t each) {
    memory_ = memory, each_ = each, made_.assign(kept ? static_cast<std::size_t>(tiles) : 0, false);
  }
  void head(std::int64_t head) {
    if (head != head_) made_.assign(made_.size(), false);
    head_ = head;
  }
  bool kept() const { return !made_.empty(); }
  // Of tile `index`, which make(float*) writes.
  template <typename F>
  const float* tile(std::int64_t index, F make) {
    if (!kept()) {
      make(memory_);
      return memory_;
    }
    float* at = memory_ + index * each_;
    auto made = made_[static_cast<std::size_t>(index)];
    if (!made) make(at);
    made = true;
    return at;
  }

 private:
  float* memory_ = nullptr;
  std::int64_t each_ = 0, head_ = -1;
  std::vector<bool> made_;
};

// The tensors of a call, as the inner loop reads them: f32, or words of two bf16 numbers side by side.
// Elements, rows and features are counted as the tensors have them.
class FlashTensors {
 public:
  FlashTensors(const FlashWork& work, const KernelArgs& args) : args_(args), pairs_(work.pairs != 0) {}

  Factors factors() const { return pairs_ ? Factors::bf16_pairs : Factors::f32; }
  bool pairs() const { return pairs_; }
  // Of `elements` side by side.
  std::int64_t words(std::int64_t elements) const { return pairs_ ? elements / 2 : elements; }
  // Of `steps` of k, the last one filled up.
  std::int64_t steps(std::int64_t steps) const { return pairs_ ? div_up(steps, 2) : steps; }
  const float* at(flash::Binding binding, std::int64_t element) const {
    return args_.at(binding) + words(element);
  }
  // Panels whose k runs over `rows` rows of `d` features; `into` holds rows * round_up(d, columns) floats.
  BView panels(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t d, float* into) const;
  // What a row of sums becomes as `d` elements of a tensor; the sums are overwritten.
  void store(flash::Binding binding, std::int64_t element, float* sums, std::int64_t d, float factor) const;
  // (a row of one tensor) . (a row of another); `row` holds 2 d floats.
  float dot(const float* a, const float* b, std::int64_t d, float* row) const;

 private:
  const KernelArgs& args_;
  bool pairs_;
};

// A tile (keys x queries) as the left side of products of pairs: each number is the sum of two bf16 numbers,
// which loses 2^-17 of it. With one of them, that were more than all else that a pass rounds.
class SplitTile {
 public:
  static constexpr int kParts = 2;
  static std::int64_t floats(const FlashWork& work);
  void hold(const FlashWork& work, float* memory);
  // From rows of keys, `stride` apart.
  void take(const float* tile, std::int64_t stride, std::int64_t keys, std::int64_t queries);
  // Rows of keys from `key` on, words of queries from `query` on, which is even.
  AView by_key(int part, std::int64_t key, std::int64_t query) const;
  // Rows of queries, words of keys from `key` / 2 on.
  AView by_query(int part, std::int64_t query, std::int64_t key) const;
  // What by_query reads, from what was taken.
  void turn();

 private:
  float *rows_[kParts] = {}, *turned_[kParts] = {};
  std::int64_t row_ = 0, turned_row_ = 0, keys_ = 0, queries_ = 0;  // rows in words
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
  FlashTensors tensors_;
  TileScope scope_;
  FlashMasks& masks_;
  FlashLayout at_;
  std::int64_t width_, depth_;  // queries, padded to a spread row, and features of values, to whole panels
  std::int64_t b_ = 0, h_ = 0, q0_ = 0, rows_ = 0;
  std::vector<Stretch> stretches_;
  HeldTiles keys_, values_;  // rows side by side; panels
  SplitTile split_scores_;
  // beside_: per pair its bias, then what dropout multiplies it by
  float *queries_, *scores_, *sums_, *largest_, *total_, *shrink_, *beside_;
  kernels::AttentionDropout dropout_{};
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
  FlashTensors tensors_;
  TileScope scope_;
  FlashMasks& masks_;
  FlashLayout at_;
  std::int64_t width_, depth_, depth_v_;  // the same; features of keys and of values
  std::int64_t b_ = 0, h_ = 0, q0_ = 0, rows_ = 0, k0_ = 0, count_ = 0;
  std::vector<Stretch> stretches_;        // of the pair
  HeldTiles keys_, values_, key_panels_;  // keys_ and values_: rows side by side
  SplitTile split_scores_, split_products_;
  float *queries_, *cotangents_, *query_rows_, *cotangent_rows_, *scores_, *products_, *steepness_, *dq_,
      *dk_, *dv_, *lse_, *delta_, *beside_, *row_;
  kernels::AttentionDropout dropout_{};
};

}  // namespace meshloom::backends::cpu
