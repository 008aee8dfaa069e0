// Keys and values of the tokens that a sliding window still shows, in a ring of rows for each sequence.
#pragma once

#include "layers/cache/pool_cache.h"

namespace meshloom::layers {

// The ring has room for the window of the first new token and all new tokens of a step. So the keys of a chunk are there when its
// queries look for them, and tokens that were guessed wrongly overwrite nothing that is still seen.
class WindowCache : public PoolCache {
 public:
  struct Config : ConfigOf<Config, PoolCache::Config> {
    static constexpr std::string_view kName = "WindowCache";
    static constexpr std::string_view kAbout =
        "Keeps the keys and values of a sliding window's tokens, and overwrites those that it has passed.";

    std::unique_ptr<Module> build(const Place& place) const override;
  };

  using PoolCache::PoolCache;
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                const kernels::PagedAttentionOptions& options) override;
};

}  // namespace meshloom::layers
