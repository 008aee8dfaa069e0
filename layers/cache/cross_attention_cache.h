// The keys and values that a cross-attention makes of a source, which it keeps in inference so that no source is read twice.
#pragma once

#include "kernels/flash_attention/flash_attention.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class CrossAttentionCache : public Module {
 public:
  struct Dims {};
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "What a cross-attention keeps of a source in inference.";
    using Built = CrossAttentionCache;
    using Dims = CrossAttentionCache::Dims;
    Dims dims;
  };

  using Module::Module;
  // Keeps the keys k (1, T, KV, D) and values v (1, T, KV, Dv) of a source, as SourceStep says.
  virtual void keep(Context& ctx, Tensor k, Tensor v) = 0;
  // In an InferenceStep: the attention of q (1, N, H, D) to what keep() keeps for this layer, of `kv_heads` heads with values of
  // `value_dim` features -> (1, N, H, Dv). `options` may have a scale, a soft_cap and a sink.
  virtual Tensor attend(Context& ctx, Tensor q, std::int64_t kv_heads, std::int64_t value_dim,
                        const kernels::FlashAttentionOptions& options) = 0;
};

}  // namespace meshloom::layers
