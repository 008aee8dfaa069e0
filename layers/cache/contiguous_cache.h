// Keys and values of a sequence in one run of rows, as long as the longest sequence.
#pragma once

#include "layers/cache/pool_cache.h"

namespace meshloom::layers {

class ContiguousCache : public PoolCache {
 public:
  struct Config : ConfigOf<Config, PoolCache::Config> {
    static constexpr std::string_view kName = "ContiguousCache";
    static constexpr std::string_view kAbout =
        "Keeps the keys and values of a sequence one behind another, and has room for the longest for each.";

    std::unique_ptr<Module> build(const Place& place) const override;
  };

  using PoolCache::PoolCache;
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                const kernels::PagedAttentionOptions& options) override;
};

}  // namespace meshloom::layers
