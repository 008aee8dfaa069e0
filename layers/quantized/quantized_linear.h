// y = x W^T + b computed with fewer bits, for training. The weight stays f32; its gradient is computed as if nothing
// were rounded, the straight-through estimator (Bengio et al., 2013). A child, the Product, says what is rounded and
// how.
#pragma once

#include <string>

#include "layers/adapters/merge.h"
#include "layers/core/layer.h"

namespace meshloom::layers {

// A product of x (N, input) and w (output, input). It is both a config and a pure function.
struct Product : Config {
  static constexpr std::string_view kAbout =
      "A product of inputs (N, input) and a matrix (output, input) with fewer bits.";
  // x w^T + bias. The bias (output) may be an empty tensor.
  virtual Tensor multiply(Tensor x, Tensor w, Tensor bias) const = 0;
};

// Eight-bit integers, with a scale for each row of x and of w from its largest magnitude; sums are exact. The gradients
// are those of x w^T, in the precision of the calls around it.
struct Int8Product : ConfigOf<Int8Product, Product> {
  static constexpr std::string_view kName = "Int8Product";
  static constexpr std::string_view kAbout =
      "A product in eight-bit integers with a scale per row of both operands; sums are exact.";
  void fields(FieldVisitor&) override {}
  Tensor multiply(Tensor x, Tensor w, Tensor bias) const override;
};

// Eight-bit floats, emulated: x and w are rounded to the format `forward` and the gradient of y to the format
// `backward`, each row scaled by its largest magnitude; the products are those of the dtype around it (Micikevicius et
// al., 2022). A format is e4m3 or e5m2; "" = not rounded.
struct Fp8Product : ConfigOf<Fp8Product, Product> {
  static constexpr std::string_view kName = "Fp8Product";
  static constexpr std::string_view kAbout =
      "A product of eight-bit floats, emulated: operands are rounded row by row (Micikevicius et al., 2022).";
  std::string forward = "e4m3", backward = "e5m2";

  void fields(FieldVisitor& v) override {
    v("forward", forward,
      {"The format that inputs and weights are rounded to; \"\": they are not rounded.",
       one_of("e4m3", "e5m2", "")});
    v("backward", backward,
      {"The format that gradients of the output are rounded to; \"\": they are not rounded.",
       one_of("e4m3", "e5m2", "")});
  }
  Tensor multiply(Tensor x, Tensor w, Tensor bias) const override;
};

class QuantizedLinear : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config>, MergeableConfig {
    static constexpr std::string_view kName = "QuantizedLinear";
    static constexpr std::string_view kAbout =
        "A Linear that is computed with fewer bits; its matrix stays f32 and is trained through the rounding "
        "(Bengio et al., 2013).";
    bool bias = false;
    Child<Initializer> init = Normal{};
    Child<Product> product = Int8Product{};

    void fields(FieldVisitor& v) override {
      v("bias", bias,
        {"Whether a learned vector is added, which is initialised to zeros.", means("bias of a product")});
      v("init", init,
        {"How the matrix (output, input) is initialised.", means("start of a product's matrix")});
      v("product", product, {"The product of inputs and matrix."});
    }
    std::string_view form_of() const override { return "Linear"; }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::unique_ptr<layers::Config> merged_config() const override;
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
