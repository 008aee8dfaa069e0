#include "layers/cache/kv_cache.h"

#include "kernels/index_copy/index_copy.h"
#include "kernels/layout/layout.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {
namespace {

// Of what flash_attention can do, what attention over a cache cannot; nullptr = nothing.
const char* unsupported(const kernels::FlashAttentionOptions& options) {
  const bool causal = options.causal || (options.right && *options.right == 0);
  if (!causal || (options.right && *options.right != 0)) return "a mask by which a token sees later ones";
  if (options.left && *options.left < 0) return "a mask by which a token does not see itself";
  if (options.prefix) return "a mask with a prefix";
  if (options.query_offset) return "a mask with an offset of its queries";
  if (options.attention_bitmask) return "a mask that is an expression";
  if (options.bias) return "a distance bias that is a table";
  if (options.dropout > 0) return "dropout of its probabilities";
  return nullptr;
}

kernels::TensorType source_type(const SourceStep& step, std::int64_t heads, std::int64_t features) {
  return {step.dtype, {step.sequences, step.length, heads, features}};
}

Tensor tokens_of(Tensor x) { return kernels::reshape(x, {x.dim(0) * x.dim(1), x.dim(2), x.dim(3)}); }

}  // namespace

Tensor attention(Context& ctx, KVCache* cache, Tensor q, Tensor k, Tensor v,
                 const kernels::FlashAttentionOptions& options) {
  if (!ctx.find<InferenceStep>()) return kernels::flash_attention(q, k, v, options);
  const auto refuse = [&](const std::string& found) {
    throw NoCache(display_path(ctx.path()), "the keys and values of earlier tokens cannot be kept for it",
                  found);
  };
  if (!cache) refuse("no cache");
  if (const char* what = unsupported(options)) refuse(what);
  Context below = ctx.child(cache->name());
  const Tensor o = cache->attend(below, tokens_of(q), tokens_of(k), tokens_of(v),
                                 {.scale = options.scale,
                                  .soft_cap = options.soft_cap,
                                  .left = options.left,
                                  .sink = options.sink,
                                  .slopes = options.slopes});
  return kernels::reshape(o, {q.dim(0), q.dim(1), q.dim(2), v.dim(3)});
}

void keep_source(Context& ctx, Tensor k, Tensor v) {
  const SourceStep& step = ctx.get<SourceStep>("SourceStep");
  Context below = ctx.child("cache");
  const auto keep = [&](const char* name, Tensor x) {
    const Tensor pool = below.cache(name, source_type(step, x.dim(1), x.dim(2)), CacheUnit::sequence);
    below.update_cache(pool, kernels::index_copy(pool, x, step.slots));
  };
  keep("keys", tokens_of(k));
  keep("values", tokens_of(v));
}

Tensor attend_to_source(Context& ctx, Tensor q, std::int64_t kv_heads, std::int64_t value_dim,
                        const kernels::FlashAttentionOptions& options) {
  const SourceStep& step = ctx.get<SourceStep>("SourceStep");
  Context below = ctx.child("cache");
  const Tensor keys = below.cache("keys", source_type(step, kv_heads, q.dim(3)), CacheUnit::sequence),
               values = below.cache("values", source_type(step, kv_heads, value_dim), CacheUnit::sequence);
  const Tensor o = kernels::paged_attention(
      tokens_of(q), {.rows = keys}, {.rows = values}, value_dim, step.sequence_ids, step.starts, step.lengths,
      {.scale = options.scale, .soft_cap = options.soft_cap, .sink = options.sink});
  return kernels::reshape(o, {q.dim(0), q.dim(1), q.dim(2), value_dim});
}

}  // namespace meshloom::layers
