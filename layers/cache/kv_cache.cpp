#include "layers/cache/kv_cache.h"

#include "kernels/layout/layout.h"
#include "layers/cache/cache_codec.h"
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

[[noreturn]] void refuse(const Context& ctx, const std::string& found) {
  throw NoCache(display_path(ctx.path()), "the keys and values of earlier tokens cannot be kept for it",
                found);
}

Tensor attend(Context& ctx, KVCache& cache, Tensor q, Tensor k, Tensor v,
              const kernels::FlashAttentionOptions& options) {
  if (const char* what = unsupported(options)) refuse(ctx, what);
  Context below = ctx.child(cache.name());
  const Tensor o = cache.attend(below, flatten_tokens(q), flatten_tokens(k), flatten_tokens(v),
                                {.scale = options.scale,
                                 .soft_cap = options.soft_cap,
                                 .left = options.left,
                                 .sink = options.sink,
                                 .slopes = options.slopes});
  return kernels::reshape(o, {q.dim(0), q.dim(1), q.dim(2), v.dim(3)});
}

}  // namespace

Tensor attention(Context& ctx, KVCache* cache, Tensor q, Tensor k, Tensor v,
                 const kernels::FlashAttentionOptions& options) {
  if (!ctx.find<InferenceStep>()) return kernels::flash_attention(q, k, v, options);
  if (!cache) refuse(ctx, "no cache");
  if (cache->keeps_latents())
    refuse(ctx,
           "a cache of the latent vectors of a LatentAttention; PagedCache keeps keys and values of any "
           "attention");
  return attend(ctx, *cache, q, k, v, options);
}

Tensor attention_to_latents(Context& ctx, KVCache& cache, Tensor q, Tensor k, Tensor v,
                            const kernels::FlashAttentionOptions& options) {
  return attend(ctx, cache, q, k, v, options);
}

}  // namespace meshloom::layers
