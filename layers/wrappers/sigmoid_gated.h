// A layer whose output is multiplied, for each token, by a gate that is computed from the same input.
#pragma once

#include "layers/feed_forward/feed_forward.h"

namespace meshloom::layers {

// y = sigmoid(gate(x)) base(x), with one gate per row, as the shared expert of Qwen's mixtures of experts (2024).
class SigmoidGated : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "SigmoidGated";
    static constexpr std::string_view kAbout =
        "A layer whose output is multiplied per token by a gate that is computed from the same input.";
    Child<Layer::Config> base = FeedForward::Config{};
    Child<Layer::Config> gate = Linear::Config{};  // to one number

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer inside.", means("layer inside a wrapper")});
      v("gate", gate, {"The projection to one number per token, whose sigmoid is the gate."});
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
