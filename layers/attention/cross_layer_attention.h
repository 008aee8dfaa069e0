// Attention that takes the keys and values of a layer before (Brandon et al., 2024: cross-layer attention).
#pragma once

#include "layers/attention/attention.h"

namespace meshloom::layers {

// Stands in some layers of a VariedStack: queries of its own against what the nearest Attention before it in
// the stack made of keys, their positions included, and values. As many heads as that one's key heads, or a
// multiple of them, and its head_dim.
class SharingAttention : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "SharingAttention";
    static constexpr std::string_view kAbout =
        "Attention that takes the keys and values of a layer before (Brandon et al., 2024).";
    Required<std::int64_t> num_heads;
    std::optional<std::int64_t> head_dim;  // none = dim / num_heads
    Child<Mask> mask = Causal{};
    std::optional<double> scale;     // of the scores; none = 1 / sqrt(head_dim)
    std::optional<double> soft_cap;  // none = scores as they are
    Child<Layer::Config> q_proj = Linear::Config{};
    Child<Layer::Config> o_proj = Linear::Config{};
    Child<QueryKeyPosition::Config> positions;  // of the queries

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SharingAttention(const Config& config, const Place& place);
  // x (B * S, dim); needs Tokens, NewestKeys and what its mask needs; keeps the documents of Segments apart.
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t dim_, heads_, head_dim_;
  double scale_, soft_cap_;
  std::unique_ptr<const Mask> mask_;
  Layer *q_proj_, *o_proj_;
  QueryKeyPosition* positions_ = nullptr;
};

}  // namespace meshloom::layers
