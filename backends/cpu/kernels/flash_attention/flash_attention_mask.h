// The mask of a call as its kernels meet it: row after row of the batch, tile by tile.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/flash_attention/flash_attention_work.h"

namespace meshloom::backends::cpu {

class FlashMasks {
 public:
  // Both must outlive this.
  FlashMasks(const FlashWork& work, const KernelArgs& args);

  // Everything below is about query head h of batch row b from here on.
  void head(std::int64_t b, std::int64_t h);
  const kernels::AttentionMask& mask() const { return mask_; }

  // Of the query tile from q0 on and the key tile from k0 on; both start where a tile does.
  kernels::Cover cover(std::int64_t q0, std::int64_t k0) const {
    const kernels::Cover shown = mask_.window_cover(q0, std::min<std::int64_t>(work_.s, q0 + work_.tile_q),
                                                    k0, std::min<std::int64_t>(work_.t, k0 + work_.tile_k));
    return by_tensors_ ? with_tensors(shown, q0, k0) : shown;
  }
  // The same where `shown` is what a schedule knows of the block.
  kernels::Cover scheduled(kernels::Cover shown, std::int64_t q0, std::int64_t k0) const {
    if (work_.moved()) return cover(q0, k0);
    return by_tensors_ ? with_tensors(shown, q0, k0) : shown;
  }

  // visit(k0, masked) for the key tiles of [begin, end) that queries [q0, q0 + tile_q) see; `masked`: not
  // every query sees all of them. `begin` is where a tile starts.
  template <typename F>
  void each_key_tile(std::int64_t q0, std::int64_t begin, std::int64_t end, F visit) const {
    for (std::int64_t k0 = begin; k0 < end; k0 += work_.tile_k)
      if (const kernels::Cover found = cover(q0, k0); found != kernels::Cover::empty)
        visit(k0, found == kernels::Cover::partial);
  }

  // Of a block of scores, those of keys that their query does not see become -infinity. By keys: a row of
  // scores per key, `stride` floats apart, queries side by side; by queries: the other way round.
  void hide_by_keys(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys, float* scores,
                    std::int64_t stride) const;
  void hide_by_queries(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys,
                       float* scores, std::int64_t stride) const;

 private:
  // Hides by bits, by keys.
  void hide_unset(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys, float* scores,
                  std::int64_t stride) const;
  kernels::Cover with_tensors(kernels::Cover shown, std::int64_t q0, std::int64_t k0) const;

  const FlashWork& work_;
  const KernelArgs& args_;
  kernels::MaskTensors tensors_;
  bool by_tensors_;  // segments or bits hide some pairs
  kernels::AttentionMask mask_;
  std::int64_t row_ = -1, head_ = -1;
  std::vector<kernels::SegmentSpan> q_spans_, k_spans_;  // by tile, where there are segments
};

}  // namespace meshloom::backends::cpu
