#include "layers/block/transformer.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {

constexpr std::int64_t kMaxLayers =
    4096;  // a larger number is a mistake, and tracing so many layers would not end

std::unique_ptr<Module> TransformerLayer::Config::build(const Place& place) const {
  return std::make_unique<TransformerLayer>(*this, place);
}

Tensor TransformerLayer::forward(Context& ctx, Tensor x) {
  return apply_branches(ctx, x, [&](const Branch& branch, Tensor h) {
    return kernels::add(h, (*branch.layer)(ctx, (*branch.norm)(ctx, h)));
  });
}

std::unique_ptr<Module> Stack::Config::build(const Place& place) const {
  return std::make_unique<Stack>(*this, place);
}

Stack::Stack(const Config& config, const Place& place) : Layer(place) {
  const std::int64_t count = config.num_layers;
  if (count <= 0) fail("num_layers must be positive", std::to_string(count));
  if (count > kMaxLayers)
    fail("num_layers must be at most " + std::to_string(kMaxLayers), std::to_string(count));
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
