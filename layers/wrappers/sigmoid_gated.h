// A layer whose output is weighed, token by token, by a gate that looks at the same input.
#pragma once

#include "layers/feed_forward/feed_forward.h"

namespace meshloom::layers {

// y = sigmoid(gate(x)) base(x), one gate per row: the shared expert of Qwen's mixtures (2024).
class SigmoidGated : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "SigmoidGated";
    static constexpr std::string_view kAbout =
        "A layer whose result is weighed per token by a gate that looks at the same input.";
    Child<Layer::Config> base = FeedForward::Config{};
    Child<Layer::Config> gate = Linear::Config{};  // to one number

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer whose result is weighed.", means("layer inside a wrapper")});
      v("gate", gate, {"Makes the one number per token whose sigmoid is the weight."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SigmoidGated(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Dims dims_;
  Layer *base_, *gate_;
};

}  // namespace meshloom::layers
