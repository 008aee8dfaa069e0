// y = x W^T + b computed on fewer bits, for training: the weight stays f32 and learns through the rounding as
// if there were none (Bengio et al., 2013). What is rounded, and to what, is a child: a Product.
#pragma once

#include <string>

#include "layers/adapters/merge.h"
#include "layers/core/layer.h"

namespace meshloom::layers {

// How x (N, input) meets w (output, input). Like an initialiser a config and a pure function at once.
struct Product : Config {
  static constexpr std::string_view kAbout =
      "How inputs (N, input) meet a matrix (output, input) on fewer bits.";
  // x w^T + bias (output), which may be no tensor.
  virtual Tensor multiply(Tensor x, Tensor w, Tensor bias) const = 0;
};

// Eight-bit integers with a scale for each row of x and each output of w, from their largest magnitudes;
// exact sums. The gradients are those of x w^T, in the precision around it.
struct Int8Product : ConfigOf<Int8Product, Product> {
  static constexpr std::string_view kName = "Int8Product";
  static constexpr std::string_view kAbout =
      "Eight-bit integers with a scale per row of either side, summed exactly.";
  void fields(FieldVisitor&) override {}
  Tensor multiply(Tensor x, Tensor w, Tensor bias) const override;
};

// Eight-bit floats, emulated: x and w are rounded to `forward`, the gradient of y to `backward`, each row by
// its largest magnitude, and multiplied as they are (Micikevicius et al., 2022). e4m3 or e5m2; "" = not
// rounded.
struct Fp8Product : ConfigOf<Fp8Product, Product> {
  static constexpr std::string_view kName = "Fp8Product";
  static constexpr std::string_view kAbout =
      "Eight-bit floats, emulated: rounded row by row and multiplied in f32 (Micikevicius et al., 2022).";
  std::string forward = "e4m3", backward = "e5m2";

  void fields(FieldVisitor& v) override {
    v("forward", forward,
      {"What inputs and weights are rounded to; \"\": not rounded.", one_of("e4m3", "e5m2", "")});
    v("backward", backward,
      {"What gradients of the output are rounded to; \"\": not rounded.", one_of("e4m3", "e5m2", "")});
  }
  Tensor multiply(Tensor x, Tensor w, Tensor bias) const override;
};

class QuantizedLinear : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, FoldableConfig {
    static constexpr std::string_view kName = "QuantizedLinear";
    static constexpr std::string_view kAbout =
        "A Linear that is computed on fewer bits; its matrix stays f32 and learns through the rounding "
        "(Bengio et "
        "al., 2013).";
    bool bias = false;
    Child<Initializer> init = Normal{};
    Child<Product> product = Int8Product{};

    void fields(FieldVisitor& v) override {
      v("bias", bias,
        {"Whether a learned vector is added, which starts as zeros.", means("bias of a product")});
      v("init", init, {"How the matrix (output, input) starts.", means("start of a product's matrix")});
      v("product", product, {"How inputs meet the matrix on fewer bits."});
    }
    std::string_view form_of() const override { return "Linear"; }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> plain() const override;
  };

  QuantizedLinear(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Dims dims_;
  Child<Product> product_;
  const Parameter& weight_;          // (output, input)
  const Parameter* bias_ = nullptr;  // (output)
};

}  // namespace meshloom::layers
