#include "layers/models/encoder.h"

namespace meshloom::layers {

Encoder::Config::Config() {
  Attention::Config attention;
  attention.mask = Full{};
  TransformerLayer::Config layer;
  layer.attention = attention;
  Stack::Config layers;
  layers.layer = layer;
  stack = layers;
}

std::unique_ptr<Module> Encoder::Config::build(const Place& place) const {
  return std::make_unique<Encoder>(*this, place);
}

void add_encoder_classes(ClassTable& classes) { classes.add<Encoder::Config>(); }

}  // namespace meshloom::layers
