#include "layers/block/residual.h"

namespace meshloom::layers {

void ResidualForm::fields(FieldVisitor& v) {
  v("attention_norm", attention_norm, {"The normalisation of the attention's branch."});
  v("attention", attention, {"The attention."});
  v("cross_attention", cross_attention, {"The attention to what an encoder made; none: without."});
  v("feed_forward_norm", feed_forward_norm,
    {"The normalisation of the feed-forward's branch; none, in a ParallelLayer: the attention's serves "
     "both."});
  v("feed_forward", feed_forward, {"The layer for each token by itself: a FeedForward or an MoE."});
}

ResidualLayer::ResidualLayer(const ResidualForm& config, const Place& place, bool second_norm)
    : Layer(place) {
  const Dims dims = config.dims;
  if (dims.input != dims.output)
    fail("a residual layer keeps the size",
         std::to_string(dims.input) + " to " + std::to_string(dims.output));
  const auto add = [&](const std::string& name, const Child<Norm::Config>& norm,
                       const Child<Layer::Config>& layer) {
    Norm* before = second_norm || branches_.empty() ? &child(name + "_norm", norm, dims) : nullptr;
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
