// A head whose logits are divided by a number (Granite, 2024).
#pragma once

#include "layers/embedding/head.h"

namespace meshloom::layers {

// y = base(x) / divisor
class ScaledHead : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "ScaledHead";
    static constexpr std::string_view kAbout = "A head whose logits are divided by a number, as in Granite.";
    Child<Layer::Config> base = TiedHead::Config{};
    double divisor = 1;

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer inside.", means("layer inside a wrapper")});
      v("divisor", divisor, {"What the outputs are divided by.", above(0)});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  ScaledHead(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  double divisor_;
};

}  // namespace meshloom::layers
