// What multi-head latent attention needs of earlier tokens, and no keys and values of heads (DeepSeek-AI, 2024).
#pragma once

#include "layers/cache/pool_cache.h"

namespace meshloom::layers {

// A row of a token is its latent vector c and the rotary part s of its key, one behind the other, for all heads; it lies in pages.
// attend() takes as keys [c, s] of one head, and as values c, which are not kept apart from the keys (see LatentAttention).
class LatentCache : public PoolCache {
 public:
  struct Config : ConfigOf<Config, PoolCache::Config> {
    static constexpr std::string_view kName = "LatentCache";
    static constexpr std::string_view kAbout =
        "Keeps the latent vectors of a LatentAttention and the keys' rotary part that its heads share, in "
        "pages "
        "of a pool (DeepSeek-AI, 2024).";

    std::unique_ptr<Module> build(const Place& place) const override;
  };

  using PoolCache::PoolCache;
  bool keeps_latents() const override { return true; }
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                const kernels::PagedAttentionOptions& options) override;
};

}  // namespace meshloom::layers
