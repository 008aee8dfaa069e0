// Attention of one tile of queries with tiles of keys that are streamed past it. Scores are transposed (keys x
// queries), so that every product reads the tensors in their own layout and softmax statistics are one per vector
// lane.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_mask.h"

namespace meshloom::backends::cpu {

// A part of a (query tile, key tile) beyond which every score is masked: queries [first_query, first_query +
// queries) of the query tile, of which the last may be padding, and keys [first_key, first_key + keys) of the key
// tile.
struct VisibleBlock {
  std::int64_t first_query, queries, first_key, keys;
};

// Keys or values of one kv head in another layout, tile by tile. With `cached`, a tile is packed once and kept while
// the head stays the same; without, it is packed every time.
class TileCache {
 public:
  // Floats of memory for `tiles` tiles of tile_floats each.
  static std::int64_t floats(bool cached, std::int64_t tiles, std::int64_t tile_floats) {
    return (cached ? tiles : 1) * tile_floats;
  }

  void use_memory(float* memory, bool cached, std::int64_t tiles, std::int64_t tile_floats) {
    memory_ = memory, tile_floats_ = tile_floats;
    packed_.assign(cached ? static_cast<std::size_t>(tiles) : 0, false);
  }
  void set_head(std::int64_t head) {
    if (head != head_) packed_.assign(packed_.size(), false);
    head_ = head;
  }
  bool cached() const { return !packed_.empty(); }
  // Tile `index`, which pack(float*) writes where it is not cached.
  template <typename F>
  const float* tile(std::int64_t index, F pack) {
    if (!cached()) {
      pack(memory_);
      return memory_;
    }
    float* at = memory_ + index * tile_floats_;
    auto packed = packed_[static_cast<std::size_t>(index)];
    if (!packed) pack(at);
    packed = true;
    return at;
  }

 private:
  float* memory_ = nullptr;
  std::int64_t tile_floats_ = 0, head_ = -1;
  std::vector<bool> packed_;
};

// The tensors of a call as the inner loop reads them: f32, or bf16 pairs of neighbouring elements. Arguments count
// elements, rows and features of the tensors.
class FlashTensors {
 public:
  FlashTensors(const FlashWork& work, const KernelArgs& args)
      : args_(args), bf16_pairs_(work.bf16_pairs != 0) {}

  OperandType operand_type() const { return bf16_pairs_ ? OperandType::bf16_pairs : OperandType::f32; }
  bool bf16_pairs() const { return bf16_pairs_; }
  // The words of `elements` neighbours.
  std::int64_t words(std::int64_t elements) const { return bf16_pairs_ ? elements / 2 : elements; }
  // The words of `steps` steps of k; an odd last step is padded.
  std::int64_t steps(std::int64_t steps) const { return bf16_pairs_ ? ceil_div(steps, 2) : steps; }
  const float* at(flash::Binding binding, std::int64_t element) const {
    return args_.at(binding) + words(element);
  }
  // Packs panels whose k runs over `rows` rows of `d` features; `into` holds rows * round_up(d, columns) floats.
  BView panels(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t d, float* into) const;
  // Stores factor * sums as `d` elements of a tensor; the sums may be overwritten.
  void store(flash::Binding binding, std::int64_t element, float* sums, std::int64_t d, float factor) const;
  // The dot product of two rows of `d` elements; `scratch` holds 2 d floats.
  float dot(const float* a, const float* b, std::int64_t d, float* scratch) const;

 private:
  const KernelArgs& args_;
  bool bf16_pairs_;
};

// A tile (keys x queries) of f32 as the left side of products of bf16 pairs: every number is split into the sum of
// two bf16 numbers, with a relative error of 2^-17. Rounding to one bf16 number would be the largest error of the
// whole pass.
class SplitBf16Tile {
 public:
  static constexpr int kParts = 2;
  static std::int64_t floats(const FlashWork& work);
  void use_memory(const FlashWork& work, float* memory);
  // Splits a tile whose rows (of keys) are `stride` apart.
  void split(const float* tile, std::int64_t stride, std::int64_t keys, std::int64_t queries);
  // Rows of keys from `key` on, words of queries from `query` on; `query` is even.
  AView by_key(int part, std::int64_t key, std::int64_t query) const;
  // Rows of queries from `query` on, words of keys from `key` / 2 on; call transpose_parts() first.
  AView by_query(int part, std::int64_t query, std::int64_t key) const;
  void transpose_parts();

 private:
  float *rows_[kParts] = {}, *transposed_[kParts] = {};
  std::int64_t row_ = 0, transposed_row_ = 0, keys_ = 0, queries_ = 0;  // rows in words
};

// The forward pass of one query tile: begin, then key_tile for each visible tile in order, then finish. Uses this
// thread's scratch, and selects the head in `masks`.
class ForwardTile {
 public:
  ForwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks);

  void begin(std::int64_t b, std::int64_t h, std::int64_t q0);
  // Keys [k0, min(k0 + tile_k, t)); `masked`: some query does not see all of them.
  void key_tile(std::int64_t k0, bool masked);
  void finish();

 private:
  const FlashWork& work_;
  const KernelArgs& args_;
  FlashTensors tensors_;
  AmxScope scope_;
  FlashMasks& masks_;
  FlashLayout at_;
  std::int64_t width_, depth_;  // queries, as padded_stride; features of values, padded to whole panels
  std::int64_t b_ = 0, h_ = 0, q0_ = 0, rows_ = 0;
  std::vector<VisibleBlock> blocks_;
  TileCache keys_, values_;  // as dense rows; as panels
  SplitBf16Tile split_scores_;
  // score_aux_ is laid out like scores_: it holds their biases and later their dropout factors.
  float *queries_, *scores_, *sums_, *row_max_, *row_sum_, *rescale_, *score_aux_;
  kernels::AttentionDropout dropout_{};
};

// The backward pass of one (query tile, key tile) at a time: query_tile, then key_tile, then add_dq, add_dkv or
// add_dbias. dk is accumulated without the factor `scale`.
class BackwardTile {
 public:
  // `accumulator_rows`: keys for which dk and dv are accumulated at once.
  BackwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks,
               std::int64_t accumulator_rows);

  // `for_keys`: add_dkv will be called; `for_queries`: add_dq will be.
  void query_tile(std::int64_t b, std::int64_t h, std::int64_t q0, bool for_keys, bool for_queries);
  // `logits`: computes only the gradient of the logits, for add_dbias.
  void key_tile(std::int64_t k0, bool masked, bool logits = false);
  void add_dq();
  // Adds to rows of t biases, one row per query; `into` begins at the tile's first key.
  void add_dbias(float* into);
  void finish_dq();

  void begin_keys(std::int64_t count);  // zeroes the first `count` rows of the accumulators
  void add_dkv(std::int64_t row);       // the tile's first key is row `row` of the accumulators
  void finish_keys(std::int64_t b, std::int64_t kv, std::int64_t k0, std::int64_t count);
  // Likewise, into the part of query head h (see flash_partial_dk), from key 0 on.
  void finish_head(std::int64_t b, std::int64_t h, std::int64_t count);

 private:
  const FlashWork& work_;
  const KernelArgs& args_;
  FlashTensors tensors_;
  AmxScope scope_;
  FlashMasks& masks_;
  FlashLayout at_;
  std::int64_t width_, depth_, depth_v_;  // queries; features of keys and of values; padded as in ForwardTile
  std::int64_t b_ = 0, h_ = 0, q0_ = 0, rows_ = 0, k0_ = 0, count_ = 0;
  std::vector<VisibleBlock> blocks_;
  TileCache keys_, values_, key_panels_;  // keys_ and values_: dense rows
  SplitBf16Tile split_scores_, split_products_;
  float *queries_, *cotangents_, *query_rows_, *cotangent_rows_, *scores_, *products_, *softcap_grad_, *dq_,
      *dk_, *dv_, *lse_, *delta_, *score_aux_, *dot_scratch_;
  kernels::AttentionDropout dropout_{};
};

}  // namespace meshloom::backends::cpu
