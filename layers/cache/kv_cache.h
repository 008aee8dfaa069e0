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
  // Whether it keeps latent vectors of a LatentAttention, which all heads share, and no keys and values of heads.
  virtual bool keeps_latents() const { return false; }
};

// The attention of a layer, q (B, S, H, D), k (B, T, KV, D), v (B, T, KV, Dv) -> (B, S, H, Dv): over the keys of the call, or in an
// InferenceStep over those that `cache` keeps, where a token sees its own sequence alone whatever the segments in
// `options` say. Throws NoCache, in a step, if cache is nullptr or keeps latents, or for options that paged_attention does not have.
Tensor attention(Context& ctx, KVCache* cache, Tensor q, Tensor k, Tensor v,
                 const kernels::FlashAttentionOptions& options);

// Likewise for a cache that keeps latents: q (B, S, H, F + R), and of each token one key of features and a rotary part,
// k (B, S, 1, F + R), whose first features are the values v (B, S, 1, F) -> (B, S, H, F). In an InferenceStep alone.
Tensor attention_to_latents(Context& ctx, KVCache& cache, Tensor q, Tensor k, Tensor v,
                            const kernels::FlashAttentionOptions& options);

}  // namespace meshloom::layers
