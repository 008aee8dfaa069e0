// One transformer layer, and a stack of equal layers.
#pragma once

#include "layers/residual.h"

namespace meshloom::layers {

// h = x + attention(norm(x));  y = h + feed_forward(norm(h)); with a cross-attention, the same of it between them.
class TransformerLayer : public ResidualLayer {
 public:
  struct Config : ConfigOf<Config, ResidualForm> {
    static constexpr std::string_view kName = "TransformerLayer";
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
    Required<std::int64_t> num_layers;
    Child<Layer::Config> layer = TransformerLayer::Config{};

    void fields(FieldVisitor& v) override {
      v("num_layers", num_layers);
      v("layer", layer);
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
