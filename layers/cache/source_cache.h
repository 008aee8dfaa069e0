// The keys and values of a source one behind another, with room for the longest source for each sequence.
#pragma once

#include "layers/cache/cache_codec.h"
#include "layers/cache/cross_attention_cache.h"

namespace meshloom::layers {

struct SourceStep;

class SourceCache : public CrossAttentionCache {
 public:
  struct Config : ConfigOf<Config, CrossAttentionCache::Config> {
    static constexpr std::string_view kName = "SourceCache";
    static constexpr std::string_view kAbout =
        "Keeps the keys and values of a source one behind another, and has room for the longest for each "
        "sequence.";
    Child<CacheCodec::Config> codec = Plain::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SourceCache(const Config& config, const Place& place);
  void keep(Context& ctx, Tensor k, Tensor v) override;
  Tensor attend(Context& ctx, Tensor q, std::int64_t kv_heads, std::int64_t value_dim,
                const kernels::FlashAttentionOptions& options) override;

 private:
  static CacheRows rows_of(const SourceStep& step);

  CacheCodec* codec_;
};

}  // namespace meshloom::layers
