// Softmax attention with one key and value head per group of query heads (Vaswani et al., 2017; Ainslie et
// al., 2023).
#pragma once

#include <memory>

#include "layers/attention/mask.h"
#include "layers/attention/multi_head_attention.h"
#include "layers/position/distance_bias.h"
#include "layers/position/position.h"

namespace meshloom::layers {

// Call information that a stack gives to its layers, where later ones may take the keys and values of earlier ones: those
// of the attention called last (see SharingAttention).
struct NewestKeys {
  struct Pair {
    Tensor keys, values;  // (B, S, KV, D), positions included
  };
  std::shared_ptr<Pair> of;
};

class Attention : public HeadedAttention {
 public:
  struct Config : ConfigOf<Config, HeadedAttention::Config> {
    static constexpr std::string_view kName = "Attention";
    static constexpr std::string_view kAbout =
        "Softmax attention, with heads of keys and values for groups of query heads (Vaswani et al., 2017; "
        "Ainslie "
        "et al., 2023).";
    Child<Mask> mask = Causal{};
    Child<DistanceBias::Config> distance_bias;  // on the scores
    Child<QueryKeyPosition::Config> positions;

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> in_use() const override { return only_used(*this); }
  };

  Attention(const Config& config, const Place& place);
  // x (B * S, dim); needs Tokens, and what its mask needs; keeps the documents of Segments apart.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  kernels::FlashAttentionOptions options(Context& ctx) const;

  std::unique_ptr<const Mask> mask_;
  DistanceBias* distance_bias_ = nullptr;
  QueryKeyPosition* positions_ = nullptr;
};

}  // namespace meshloom::layers
