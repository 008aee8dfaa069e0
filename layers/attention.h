// Softmax attention with one key and value head per group of query heads (Vaswani et al., 2017; Ainslie et
// al., 2023).
#pragma once

#include <memory>
#include <vector>

#include "layers/distance_bias.h"
#include "layers/in_use.h"
#include "layers/linear.h"
#include "layers/mask.h"
#include "layers/position.h"

namespace meshloom::layers {

// Call information that a stack gives to its layers, where later ones may take the keys and values of earlier ones: those
// of the attention called last (see SharingAttention).
struct NewestKeys {
  struct Pair {
    Tensor keys, values;  // (B, S, KV, D), positions included
  };
  std::shared_ptr<Pair> of;
};

class Attention : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, ForTraining {
    static constexpr std::string_view kName = "Attention";
    Required<std::int64_t> num_heads;
    std::optional<std::int64_t> num_kv_heads;  // none = num_heads
    std::optional<std::int64_t> head_dim;      // none = dim / num_heads
    Child<Mask> mask = Causal{};
    std::optional<double> scale;        // of the scores; none = 1 / sqrt(head_dim)
    std::optional<double> soft_cap;     // scores become soft_cap tanh(score / soft_cap); none = as they are
    Child<DistanceBias::Config> distance_bias;  // on the scores
    double dropout = 0;           // of the probabilities, in training
    bool report_entropy = false;  // in training: summary "entropy", the mean over heads and queries of -sum p log p
    Child<Initializer> sink;  // of a learned score per head that stands for no position; none = without
    Child<Layer::Config> q_proj = Linear::Config{};
    Child<Layer::Config> k_proj = Linear::Config{};
    Child<Layer::Config> v_proj = Linear::Config{};
    Child<Layer::Config> o_proj = Linear::Config{};
    Child<QueryKeyPosition::Config> positions;

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> in_use() const override;
  };

  Attention(const Config& config, const Place& place);
  // x (B * S, dim); needs Tokens, and what its mask needs; keeps the documents of Segments apart.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  kernels::FlashAttentionOptions options(Context& ctx) const;
  void report_entropy(Context& ctx, Tensor q, Tensor k, kernels::FlashAttentionOptions options) const;

  std::int64_t dim_, heads_, kv_heads_, head_dim_;
  double scale_;
  double soft_cap_;  // 0 = none
  double dropout_;
  bool report_entropy_;
  std::unique_ptr<const Mask> mask_;
  DistanceBias* distance_bias_ = nullptr;
  const Parameter* sink_ = nullptr;  // (heads)
  Layer *q_proj_, *k_proj_, *v_proj_, *o_proj_;
  QueryKeyPosition* positions_ = nullptr;
};

}  // namespace meshloom::layers
