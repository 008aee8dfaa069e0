// Keys and values in pages, so that sequences of any length share one pool without gaps (Kwon et al., 2023).
#pragma once

#include "layers/cache/pool_cache.h"

namespace meshloom::layers {

class PagedCache : public PoolCache {
 public:
  struct Config : ConfigOf<Config, PoolCache::Config> {
    static constexpr std::string_view kName = "PagedCache";
    static constexpr std::string_view kAbout =
        "Keeps the keys and values of all tokens, in pages of a pool (Kwon et al., 2023).";

    std::unique_ptr<Module> build(const Place& place) const override;
  };

  using PoolCache::PoolCache;
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                const kernels::PagedAttentionOptions& options) override;
};

}  // namespace meshloom::layers
