#include "layers/transformer.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {

void TransformerLayer::Config::fields(FieldVisitor& v) {
  v("attention_norm", attention_norm);
  v("attention", attention);
  v("feed_forward_norm", feed_forward_norm);
  v("feed_forward", feed_forward);
}

std::unique_ptr<Module> TransformerLayer::Config::build(const Place& place) const {
  return std::make_unique<TransformerLayer>(*this, place);
}

TransformerLayer::TransformerLayer(const Config& config, const Place& place) : Layer(place) {
  const Dims dims = config.dims;
  if (dims.input != dims.output)
    fail("a residual layer keeps the size",
         std::to_string(dims.input) + " to " + std::to_string(dims.output));
  attention_norm_ = &child("attention_norm", config.attention_norm, dims);
  attention_ = &child("attention", config.attention, dims);
  feed_forward_norm_ = &child("feed_forward_norm", config.feed_forward_norm, dims);
  feed_forward_ = &child("feed_forward", config.feed_forward, dims);
}

Tensor TransformerLayer::forward(Context& ctx, Tensor x) {
  ctx.mark(x, "layer.input", {axis::kTokens, axis::kEmbed});
  const Tensor h = kernels::add(x, (*attention_)(ctx, (*attention_norm_)(ctx, x)));
  ctx.mark(h, "layer.middle", {axis::kTokens, axis::kEmbed});
  const Tensor y = kernels::add(h, (*feed_forward_)(ctx, (*feed_forward_norm_)(ctx, h)));
  return ctx.mark(y, "layer.output", {axis::kTokens, axis::kEmbed});
}

std::unique_ptr<Module> Stack::Config::build(const Place& place) const {
  return std::make_unique<Stack>(*this, place);
}

Stack::Stack(const Config& config, const Place& place) : Layer(place) {
  const std::int64_t count = config.num_layers;
  if (count <= 0) fail("num_layers is positive", std::to_string(count));
  for (std::int64_t i = 0; i < count; ++i) {
    provide(Depth{count, i});
    layers_.push_back(&child("layer" + std::to_string(i), config.layer_at(i), config.dims));
  }
}

Tensor Stack::forward(Context& ctx, Tensor x) {
  for (Layer* layer : layers_) x = (*layer)(ctx, x);
  return x;
}

void add_transformer_classes(ClassTable& classes) {
  classes.add<TransformerLayer::Config>();
  classes.add<Stack::Config>();
}

}  // namespace meshloom::layers
