// Which probabilities of an attention are dropped: see op "flash_attention". For the host's kernels and the
// reference.
#pragma once

#include "kernels/core/philox.h"
#include "kernels/flash_attention/flash_attention.h"

namespace meshloom::kernels {

struct AttentionDropout {
  std::uint32_t seed, step, first_row, k0, k1, threshold;
  float kept;
  std::uint32_t queries, blocks;  // of a head; of four keys each

  // The first two words of the counter for keys [4 keys, 4 keys + 4) of query i of head h, in batch row b.
  std::uint32_t block(std::int64_t h, std::int64_t i, std::int64_t keys) const {
    return (static_cast<std::uint32_t>(h) * queries + static_cast<std::uint32_t>(i)) * blocks +
           static_cast<std::uint32_t>(keys);
  }
  std::uint32_t row(std::int64_t b) const { return first_row + static_cast<std::uint32_t>(b); }
  PhiloxWords words(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t keys) const {
    return philox({{block(h, i, keys), row(b), step, seed}}, k0, k1);
  }
  // Of a word: what its probability is multiplied by.
  float factor(std::uint32_t word) const { return word < threshold ? 0.0f : kept; }
  float factor(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return factor(words(b, h, i, j / 4).v[j % 4]);
  }
};

// `rng_state`: the input's three words.
inline AttentionDropout attention_dropout(const AttentionDims& d, const std::int32_t* rng_state) {
  return {static_cast<std::uint32_t>(rng_state[0]),
          static_cast<std::uint32_t>(rng_state[1]),
          static_cast<std::uint32_t>(rng_state[2]),
          d.k0,
          d.k1,
          d.threshold(),
          static_cast<float>(d.kept()),
          static_cast<std::uint32_t>(d.s),
          static_cast<std::uint32_t>((d.t + 3) / 4)};
}

}  // namespace meshloom::kernels
