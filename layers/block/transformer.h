// The pre-norm transformer layer, and a stack of equal layers.
#pragma once

#include "layers/block/residual.h"

namespace meshloom::layers {

// h = x + attention(norm(x));  y = h + feed_forward(norm(h)). A cross-attention is added in the same way between them.
class TransformerLayer : public ResidualLayer {
 public:
  struct Config : ConfigOf<Config, ResidualLayer::Config> {
    static constexpr std::string_view kName = "TransformerLayer";
    static constexpr std::string_view kAbout = "h = x + attention(norm(x)), y = h + feed_forward(norm(h)).";
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  TransformerLayer(const Config& config, const Place& place) : ResidualLayer(config, place) {}
  Tensor forward(Context& ctx, Tensor x) override;
};

// The layers layer0, layer1, ..., which all have the same config.
class Stack : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Stack";
    static constexpr std::string_view kAbout = "A number of equal layers, one after another.";
    Required<std::int64_t> num_layers;
    Child<Layer::Config> layer = TransformerLayer::Config{};

    void fields(FieldVisitor& v) override {
      v("num_layers", num_layers, {"The number of layers.", at_least(1)});
      v("layer", layer, {"The config of every layer."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    // The config of one of the layers, which are counted from 0.
    virtual Child<Layer::Config> layer_at(std::int64_t /*index*/) const { return layer; }
  };

  Stack(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::vector<Layer*> layers_;
};

}  // namespace meshloom::layers
