// Keys and values in pages, so that sequences of any length share one pool without gaps (Kwon et al., 2023).
#pragma once

#include <string>

#include "layers/cache/kv_cache.h"

namespace meshloom::layers {

class PagedCache : public KVCache {
 public:
  struct Config : ConfigOf<Config, KVCache::Config> {
    static constexpr std::string_view kName = "PagedCache";
    static constexpr std::string_view kAbout =
        "Keeps the keys and values of all tokens, in pages of a pool (Kwon et al., 2023).";
    std::string dtype = "activations";

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  PagedCache(const Config& config, const Place& place);
  Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                const kernels::PagedAttentionOptions& options) override;

 private:
  std::string dtype_;
};

}  // namespace meshloom::layers
