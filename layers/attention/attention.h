// Self-attention with one key and value head per group of query heads (Vaswani et al., 2017; Ainslie et al., 2023).
#pragma once

#include <memory>

#include "layers/attention/mask.h"
#include "layers/attention/projected_kv_attention.h"
#include "layers/position/distance_bias.h"
#include "layers/position/position.h"

namespace meshloom::layers {

// Call information of a stack in which a layer may use the keys and values of an earlier layer (CrossLayerAttention):
// those of the Attention that was called last.
struct SharedKV {
  struct KeysValues {
    Tensor keys, values;  // (B, S, KV, D), positions already applied
  };
  std::shared_ptr<KeysValues> latest;
};

class Attention : public ProjectedKVAttention {
 public:
  struct Config : ConfigOf<Config, ProjectedKVAttention::Config> {
    static constexpr std::string_view kName = "Attention";
    static constexpr std::string_view kAbout =
        "Softmax self-attention, with heads of keys and values for groups of query heads (Vaswani et al., "
        "2017; "
        "Ainslie et al., 2023).";
    Child<Mask> mask = Causal{};
    Child<DistanceBias::Config> distance_bias;
    Child<QueryKeyPosition::Config> positions;
    Child<KVCache::Config> cache = PagedCache::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> inference_config() const override { return inference_copy(*this); }
  };

  Attention(const Config& config, const Place& place);
  // x (B * S, dim). The context must have Tokens and what the mask needs. With Segments, a position attends only to its
  // own document.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  kernels::FlashAttentionOptions options(Context& ctx) const;

  std::unique_ptr<const Mask> mask_;
  DistanceBias* distance_bias_ = nullptr;
  QueryKeyPosition* positions_ = nullptr;
};

}  // namespace meshloom::layers
