// What all residual layers have in common: branches, which are an attention, perhaps a cross-attention, and a
// feed-forward, whose outputs are added to the residual stream.
#pragma once

#include <vector>

#include "layers/attention/attention.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/norm/norm.h"

namespace meshloom::layers {

class ResidualLayer : public Layer {
 public:
  struct Config : Layer::Config {
    Child<Norm::Config> attention_norm = RMSNorm::Config{};
    Child<Layer::Config> attention = Attention::Config{};
    Child<Layer::Config> cross_attention;  // its norms are as attention_norm says; none = there is none
    Child<Norm::Config> feed_forward_norm = RMSNorm::Config{};
    Child<Layer::Config> feed_forward = FeedForward::Config{};

    void fields(FieldVisitor& v) override;
  };

 protected:
  struct Branch {
    Norm* norm;  // nullptr = the first branch's norm is used
    Layer* layer;
    Norm* post_norm = nullptr;
  };

  // With `shared_norm`, all branches use the norm of the first one.
  ResidualLayer(const Config& config, const Place& place, bool shared_norm = false);
  // Gives each branch a norm of its output.
  void build_post_norms(const Child<Norm::Config>& attention, const Child<Norm::Config>& feed_forward,
                        const Dims& dims);
  // Applies step(branch, x) for one branch after another, and tags the values between them.
  template <typename Step>
  Tensor apply_branches(Context& ctx, Tensor x, Step step) const {
    mark(ctx, x, "layer.input");
    for (std::size_t i = 0; i < branches_.size(); ++i)
      x = mark(ctx, step(branches_[i], x), i + 1 == branches_.size() ? "layer.output" : "layer.middle");
    return x;
  }
  static Tensor mark(Context& ctx, Tensor x, const char* tag) {
    return ctx.mark(x, tag, {axis::kTokens, axis::kEmbed});
  }

  std::vector<Branch> branches_;  // attention, cross-attention if there is one, feed-forward
};

}  // namespace meshloom::layers
