// The attention mask as the kernels apply it: for one batch row and head at a time, tile by tile.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/flash_attention/flash_attention_work.h"

namespace meshloom::backends::cpu {

class FlashMasks {
 public:
  // Both must outlive this.
  FlashMasks(const FlashWork& work, const KernelArgs& args);

  // Selects query head h of batch row b for everything below.
  void head(std::int64_t b, std::int64_t h);
  const kernels::AttentionMask& mask() const { return mask_; }

  // How much of the tile of queries from q0 on and keys from k0 on is visible. q0 and k0 are starts of tiles.
  kernels::Cover cover(std::int64_t q0, std::int64_t k0) const {
    const kernels::Cover shown = mask_.window_cover(q0, std::min<std::int64_t>(work_.s, q0 + work_.tile_q),
                                                    k0, std::min<std::int64_t>(work_.t, k0 + work_.tile_k));
    return tensors_mask_ ? with_tensors(shown, q0, k0) : shown;
  }
  // Likewise, given `shown`, what a schedule knows of the block.
  kernels::Cover scheduled(kernels::Cover shown, std::int64_t q0, std::int64_t k0) const {
    if (work_.tensors_extend_mask()) return cover(q0, k0);
    return tensors_mask_ ? with_tensors(shown, q0, k0) : shown;
  }

  // Calls visit(k0, masked) for the key tiles of [begin, end) that queries [q0, q0 + tile_q) see; `masked`: some
  // query does not see all of the tile. `begin` is the start of a tile.
  template <typename F>
  void each_key_tile(std::int64_t q0, std::int64_t begin, std::int64_t end, F visit) const {
    for (std::int64_t k0 = begin; k0 < end; k0 += work_.tile_k)
      if (const kernels::Cover found = cover(q0, k0); found != kernels::Cover::empty)
        visit(k0, found == kernels::Cover::partial);
  }

  // Sets the scores of keys that their query does not see to -infinity. mask_by_keys: scores (keys x queries);
  // mask_by_queries: scores (queries x keys); rows are `stride` floats apart.
  void mask_by_keys(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys, float* scores,
                    std::int64_t stride) const;
  void mask_by_queries(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys,
                       float* scores, std::int64_t stride) const;

 private:
  // The bitmask's part of mask_by_keys.
  void mask_by_bits(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys, float* scores,
                    std::int64_t stride) const;
  kernels::Cover with_tensors(kernels::Cover shown, std::int64_t q0, std::int64_t k0) const;

  const FlashWork& work_;
  const KernelArgs& args_;
  kernels::MaskTensors tensors_;
  bool tensors_mask_;  // segments or the bitmask mask some scores
  kernels::AttentionMask mask_;
  std::int64_t row_ = -1, head_ = -1;
  std::vector<kernels::SegmentSpan> q_spans_, k_spans_;  // by tile; empty without segments
};

}  // namespace meshloom::backends::cpu
