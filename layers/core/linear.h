// y = x W^T + b. Below a mixture of experts each row is multiplied by its own expert's W and b (see experts.h).
#pragma once

#include "layers/core/layer.h"

namespace meshloom::layers {

class Linear : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Linear";
    static constexpr std::string_view kAbout = "The product with a learned matrix, y = x W^T + b.";
    bool bias = false;  // initialised to zeros
    Child<Initializer> init = Normal{};

    void fields(FieldVisitor& v) override {
      v("bias", bias,
        {"Whether a learned vector is added, which is initialised to zeros.", means("bias of a product")});
      v("init", init,
        {"How the matrix (output, input) is initialised.", means("start of a product's matrix")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Linear(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;
  LinearParameters linear_parameters() const override;

 private:
  Dims dims_;
  const Parameter& weight_;          // (output, input), or (experts, output, input)
  const Parameter* bias_ = nullptr;  // (output), or (experts, output)
};

}  // namespace meshloom::layers
