#include "layers/block/residual.h"

namespace meshloom::layers {

void ResidualLayer::Config::fields(FieldVisitor& v) {
  v("attention_norm", attention_norm, {"The normalisation of the attention branch."});
  v("attention", attention, {"The self-attention."});
  v("cross_attention", cross_attention, {"The attention to the output of an encoder; none: there is none."});
  v("feed_forward_norm", feed_forward_norm,
    {"The normalisation of the feed-forward branch; none, in a ParallelLayer: that of the attention is "
     "used."});
  v("feed_forward", feed_forward,
    {"The layer that is applied to each token separately: a FeedForward or an MoE."});
}

ResidualLayer::ResidualLayer(const Config& config, const Place& place, bool shared_norm) : Layer(place) {
  const Dims dims = config.dims;
  if (dims.input != dims.output)
    fail("a residual layer must keep the size",
         std::to_string(dims.input) + " to " + std::to_string(dims.output));
  const auto add = [&](const std::string& name, const Child<Norm::Config>& norm,
                       const Child<Layer::Config>& layer) {
    Norm* before = !shared_norm || branches_.empty() ? &child(name + "_norm", norm, dims) : nullptr;
    branches_.push_back({before, &child(name, layer, dims)});
  };
  add("attention", config.attention_norm, config.attention);
  if (config.cross_attention) add("cross_attention", config.attention_norm, config.cross_attention);
  add("feed_forward", config.feed_forward_norm, config.feed_forward);
}

void ResidualLayer::build_post_norms(const Child<Norm::Config>& attention,
                                     const Child<Norm::Config>& feed_forward, const Dims& dims) {
  for (Branch& branch : branches_)
    branch.post_norm = &child(branch.layer->name() + "_post_norm",
                              &branch == &branches_.back() ? feed_forward : attention, dims);
}

}  // namespace meshloom::layers
