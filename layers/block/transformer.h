// One transformer layer, and a stack of equal layers.
#pragma once

#include "layers/block/residual.h"

namespace meshloom::layers {

// h = x + attention(norm(x));  y = h + feed_forward(norm(h)); with a cross-attention, the same of it between them.
class TransformerLayer : public ResidualLayer {
 public:
  struct Config : ConfigOf<Config, ResidualForm> {
    static constexpr std::string_view kName = "TransformerLayer";
    static constexpr std::string_view kAbout = "h = x + attention(norm(x)), y = h + feed_forward(norm(h)).";
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  TransformerLayer(const Config& config, const Place& place) : ResidualLayer(config, place) {}
  Tensor forward(Context& ctx, Tensor x) override;
};

// layer0, layer1, ...: one config, num_layers modules.
class Stack : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Stack";
    static constexpr std::string_view kAbout = "Equal layers, one after another.";
    Required<std::int64_t> num_layers;
    Child<Layer::Config> layer = TransformerLayer::Config{};

    void fields(FieldVisitor& v) override {
      v("num_layers", num_layers, {"How many layers there are.", at_least(1)});
      v("layer", layer, {"What every layer is."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    // What layer `index` is, counted from 0.
    virtual Child<Layer::Config> layer_at(std::int64_t) const { return layer; }
  };

  Stack(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::vector<Layer*> layers_;
};

}  // namespace meshloom::layers
