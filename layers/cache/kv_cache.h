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

}  // namespace meshloom::layers
