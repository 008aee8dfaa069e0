#include "layers/cache/source_cache.h"

#include "kernels/layout/layout.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

void SourceCache::Config::fields(FieldVisitor& v) {
  v("codec", codec, {"The form in which keys and values are kept.", means("form of a cache's numbers")});
}

std::unique_ptr<Module> SourceCache::Config::build(const Place& place) const {
  return std::make_unique<SourceCache>(*this, place);
}

SourceCache::SourceCache(const Config& config, const Place& place)
    : CrossAttentionCache(place), codec_(&child("codec", config.codec, {})) {}

CacheRows SourceCache::rows_of(const SourceStep& step) {
  return {step.slots, step.sequences, step.length, CacheUnit::sequence, step.dtype};
}

void SourceCache::keep(Context& ctx, Tensor k, Tensor v) {
  const CacheRows rows = rows_of(ctx.get<SourceStep>("SourceStep"));
  for (const auto& [name, x] : {std::pair{"keys", k}, {"values", v}})
    codec_->keep(ctx, name, flatten_tokens(x), rows);
}

Tensor SourceCache::attend(Context& ctx, Tensor q, std::int64_t kv_heads, std::int64_t value_dim,
                           const kernels::FlashAttentionOptions& options) {
  const SourceStep& step = ctx.get<SourceStep>("SourceStep");
  const CacheRows rows = rows_of(step);
  const kernels::PagedRows keys = codec_->kept(ctx, "keys", kv_heads, q.dim(3), rows),
                           values = codec_->kept(ctx, "values", kv_heads, value_dim, rows);
  const Tensor o = kernels::paged_attention(
      flatten_tokens(q), keys, values, value_dim, step.sequence_ids, step.starts, step.lengths,
      {.scale = options.scale, .soft_cap = options.soft_cap, .sink = options.sink});
  return kernels::reshape(o, {q.dim(0), q.dim(1), q.dim(2), value_dim});
}

void add_source_cache_classes(ClassTable& classes) { classes.add<SourceCache::Config>(); }

}  // namespace meshloom::layers
