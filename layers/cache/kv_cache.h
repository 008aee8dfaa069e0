// The keys and values of earlier tokens, which an attention keeps in inference so that no token is computed twice. A cache is
// a component: attention knows the interface alone, and a modifier can put another in its place.
#pragma once

#include "kernels/flash_attention/flash_attention.h"
#include "kernels/paged_attention/paged_attention.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

// What a model cannot do in an InferenceStep, with the path of the layer.
struct NoCache : Error {
  using Error::Error;
};

class KVCache : public Module {
 public:
  struct Dims {};
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "What an attention keeps of earlier tokens in inference.";
    using Built = KVCache;
    using Dims = KVCache::Dims;
    Dims dims;
  };

  using Module::Module;
  // Keeps k (N, KV, D) and v (N, KV, Dv) of the tokens of the InferenceStep, and attends with q (N, H, D) to what is kept of
  // each token's own sequence up to its position. Returns (N, H, Dv).
  virtual Tensor attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                        const kernels::PagedAttentionOptions& options) = 0;
};

// The attention of a layer, q (B, S, H, D), k (B, T, KV, D), v (B, T, KV, Dv) -> (B, S, H, Dv): over the keys of the call, or in an
// InferenceStep over those that `cache` keeps, where a token sees its own sequence alone whatever the segments in
// `options` say. Throws NoCache, in a step, if cache is nullptr or for options that paged_attention does not have.
Tensor attention(Context& ctx, KVCache* cache, Tensor q, Tensor k, Tensor v,
                 const kernels::FlashAttentionOptions& options);

// Keeps the keys k (1, T, KV, D) and values v (1, T, KV, Dv) of a source, as SourceStep says.
void keep_source(Context& ctx, Tensor k, Tensor v);
// The attention of q (1, N, H, D) to what keep_source() kept of this layer, of `kv_heads` heads with values of `value_dim` features
// -> (1, N, H, Dv). `options` may have a scale, a soft_cap and a sink.
Tensor attend_to_source(Context& ctx, Tensor q, std::int64_t kv_heads, std::int64_t value_dim,
                        const kernels::FlashAttentionOptions& options);

}  // namespace meshloom::layers
