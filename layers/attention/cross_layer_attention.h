// Attention that uses the keys and values of an earlier layer (Brandon et al., 2024: cross-layer attention).
#pragma once

#include "layers/attention/attention.h"

namespace meshloom::layers {

// For some layers of a HeterogeneousStack: it projects queries only, and attends to the keys, with their positions, and
// the values of the nearest Attention before it in the stack. num_heads is a multiple of that one's key heads, and
// head_dim is the same.
class CrossLayerAttention : public MultiHeadAttention {
 public:
  struct Config : ConfigOf<Config, MultiHeadAttention::Config> {
    static constexpr std::string_view kName = "CrossLayerAttention";
    static constexpr std::string_view kAbout =
        "Attention that uses the keys and values of an earlier layer (Brandon et al., 2024).";
    Child<Mask> mask = Causal{};
    Child<QueryKeyPosition::Config> positions;  // of the queries
    Child<KVCache::Config> cache = PagedCache::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  CrossLayerAttention(const Config& config, const Place& place);
  // x (B * S, dim). The context must have Tokens, SharedKV and what the mask needs. With Segments, a position attends
  // only to its own document.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::unique_ptr<const Mask> mask_;
  QueryKeyPosition* positions_ = nullptr;
};

}  // namespace meshloom::layers
