// Other ways to join attention and feed-forward to the residual stream. Their fields are those of
// TransformerLayer, so that each can take its place: --replace TransformerLayer=ParallelLayer. A cross-attention is
// joined as the attention before it.
#pragma once

#include "layers/block/residual.h"

namespace meshloom::layers {

// h = norm(x + attention(x));  y = norm(h + feed_forward(h)) (Vaswani et al., 2017)
struct PostNormLayer : ConfigOf<PostNormLayer, ResidualForm> {
  static constexpr std::string_view kName = "PostNormLayer";
  static constexpr std::string_view kAbout =
      "h = norm(x + attention(x)), y = norm(h + feed_forward(h)) (Vaswani et al., 2017).";
  std::unique_ptr<Module> build(const Place& place) const override;
};

// h = x + post(attention(pre(x)));  y = h + post(feed_forward(pre(h))): Gemma 2's sandwich. attention_norm
// and feed_forward_norm are the ones before.
struct HybridNormLayer : ConfigOf<HybridNormLayer, ResidualForm> {
  static constexpr std::string_view kName = "HybridNormLayer";
  static constexpr std::string_view kAbout = "Norms before and behind each branch, as Gemma 2 has them.";
  Child<Norm::Config> attention_post_norm = RMSNorm::Config{};
  Child<Norm::Config> feed_forward_post_norm = RMSNorm::Config{};

  void fields(FieldVisitor& v) override;
  std::unique_ptr<Module> build(const Place& place) const override;
};

// y = x + attention(norm(x)) + feed_forward(norm(x)), each with a norm of its own (GPT-NeoX);
// feed_forward_norm = none: both with one (GPT-J).
struct ParallelLayer : ConfigOf<ParallelLayer, ResidualForm> {
  static constexpr std::string_view kName = "ParallelLayer";
  static constexpr std::string_view kAbout =
      "y = x + attention(norm(x)) + feed_forward(norm(x)), as GPT-NeoX and GPT-J have it.";
  std::unique_ptr<Module> build(const Place& place) const override;
};

}  // namespace meshloom::layers
