// Layers that add to a residual stream what an attention and a feed-forward make, and between them, in the
// decoder of a model with an encoder, a cross-attention: what all their forms have in common.
#pragma once

#include <vector>

#include "layers/attention/attention.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/norm/norm.h"

namespace meshloom::layers {

struct ResidualForm : Layer::Config {
  Child<Norm::Config> attention_norm = RMSNorm::Config{};
  Child<Layer::Config> attention = Attention::Config{};
  Child<Layer::Config> cross_attention;  // its norms are of the attention's kind; none = without
  Child<Norm::Config> feed_forward_norm = RMSNorm::Config{};
  Child<Layer::Config> feed_forward = FeedForward::Config{};

  void fields(FieldVisitor& v) override;
};

class ResidualLayer : public Layer {
 protected:
  struct Branch {
    Norm* norm;  // nullptr: the first branch's
    Layer* layer;
    Norm* post_norm = nullptr;
  };

  // Without `second_norm` the first branch's norm serves all.
  ResidualLayer(const ResidualForm& config, const Place& place, bool second_norm = true);
  // Gives every branch a norm behind it.
  void build_post_norms(const Child<Norm::Config>& attention, const Child<Norm::Config>& feed_forward,
                        const Dims& dims);
  // x through the branches in their order, `step` each; labels what stands between them.
  template <typename Step>
  Tensor in_turn(Context& ctx, Tensor x, Step step) const {
    mark(ctx, x, "layer.input");
    for (std::size_t i = 0; i < branches_.size(); ++i)
      x = mark(ctx, step(branches_[i], x), i + 1 == branches_.size() ? "layer.output" : "layer.middle");
    return x;
  }
  static Tensor mark(Context& ctx, Tensor x, const char* tag) {
    return ctx.mark(x, tag, {axis::kTokens, axis::kEmbed});
  }

  std::vector<Branch> branches_;  // attention, cross-attention where there is one, feed-forward
};

}  // namespace meshloom::layers
