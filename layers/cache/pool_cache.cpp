#include "layers/cache/pool_cache.h"

#include "layers/core/inference_step.h"

namespace meshloom::layers {

void PoolCache::Config::fields(FieldVisitor& v) {
  v("codec", codec,
    {"The form in which keys and values are kept.", means("form of a cache's numbers"), formerly("dtype")});
}

PoolCache::PoolCache(const Config& config, const Place& place)
    : KVCache(place), codec_(&child("codec", config.codec, {})) {}

Tensor PoolCache::attend_to(Context& ctx, Tensor q, Tensor k, Tensor v, const CacheRows& rows, Tensor table,
                            const kernels::PagedAttentionOptions& options) {
  const InferenceStep& step = ctx.get<InferenceStep>("InferenceStep");
  const std::int64_t value_dim = v.dim(2);
  const kernels::PagedRows keys = codec_->keep(ctx, "keys", k, rows),
                           values = codec_->keep(ctx, "values", v, rows);
  return kernels::paged_attention(q, keys, values, value_dim, table, step.query_starts, step.lengths,
                                  options);
}

CacheRows PoolCache::rows_of_pages(Context& ctx) {
  const InferenceStep& step = ctx.get<InferenceStep>("InferenceStep");
  return {step.slots, step.pages, step.page_size, CacheUnit::page, step.dtype};
}

CacheRows PoolCache::rows_of_sequences(Context& ctx, std::int64_t size) {
  const InferenceStep& step = ctx.get<InferenceStep>("InferenceStep");
  return {ctx.sequence_slots(size, step.slots.dim(0)), step.sequences, size, CacheUnit::sequence, step.dtype};
}

}  // namespace meshloom::layers
