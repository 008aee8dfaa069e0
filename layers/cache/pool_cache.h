// What caches have in common that keep the keys and the values of each token as rows of two pools.
#pragma once

#include "layers/cache/cache_codec.h"
#include "layers/cache/kv_cache.h"

namespace meshloom::layers {

struct InferenceStep;

class PoolCache : public KVCache {
 public:
  struct Config : KVCache::Config {
    Child<CacheCodec::Config> codec = Plain::Config{};

    void fields(FieldVisitor& v) override;
  };

  PoolCache(const Config& config, const Place& place);

 protected:
  // Keeps k and v in these rows and attends to what is kept. `table` (R, M) names the blocks of each sequence.
  Tensor attend_to(Context& ctx, Tensor q, Tensor k, Tensor v, const CacheRows& rows, Tensor table,
                   const kernels::PagedAttentionOptions& options);
  // The rows of pools of pages, which InferenceStep::page_table names.
  static CacheRows rows_of_pages(Context& ctx);
  // The rows of pools that have `size` of them for each sequence, whose token at position p is in its row p mod size. Blocks of them
  // are named by InferenceStep::sequence_ids.
  static CacheRows rows_of_sequences(Context& ctx, std::int64_t size);

  CacheCodec* codec_;
};

}  // namespace meshloom::layers
