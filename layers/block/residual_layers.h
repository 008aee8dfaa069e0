// Other ways of adding attention and feed-forward to the residual stream. The fields are those of TransformerLayer, so
// that each class can replace it: --replace TransformerLayer=ParallelLayer. A cross-attention is added as the attention
// is.
#pragma once

#include "layers/block/residual.h"

namespace meshloom::layers {

// h = norm(x + attention(x));  y = norm(h + feed_forward(h)) (Vaswani et al., 2017)
struct PostNormLayer : ConfigOf<PostNormLayer, ResidualLayer::Config> {
  static constexpr std::string_view kName = "PostNormLayer";
  static constexpr std::string_view kAbout =
      "h = norm(x + attention(x)), y = norm(h + feed_forward(h)) (Vaswani et al., 2017).";
  std::unique_ptr<Module> build(const Place& place) const override;
};

// h = x + post(attention(pre(x)));  y = h + post(feed_forward(pre(h))), as in Gemma 2. attention_norm and
// feed_forward_norm are the norms before the branches.
struct HybridNormLayer : ConfigOf<HybridNormLayer, ResidualLayer::Config> {
  static constexpr std::string_view kName = "HybridNormLayer";
  static constexpr std::string_view kAbout = "A norm before and a norm after each branch, as in Gemma 2.";
  Child<Norm::Config> attention_post_norm = RMSNorm::Config{};
  Child<Norm::Config> feed_forward_post_norm = RMSNorm::Config{};

  void fields(FieldVisitor& v) override;
  std::unique_ptr<Module> build(const Place& place) const override;
};

// y = x + attention(norm(x)) + feed_forward(norm(x)), each with its own norm (GPT-NeoX); with feed_forward_norm = none
// they share one (GPT-J).
struct ParallelLayer : ConfigOf<ParallelLayer, ResidualLayer::Config> {
  static constexpr std::string_view kName = "ParallelLayer";
  static constexpr std::string_view kAbout =
      "y = x + attention(norm(x)) + feed_forward(norm(x)), as in GPT-NeoX and GPT-J.";
  std::unique_ptr<Module> build(const Place& place) const override;
};

}  // namespace meshloom::layers
