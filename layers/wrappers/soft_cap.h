// Wrappers that scale: outputs that are capped, and embeddings that are multiplied by a number.
#pragma once

#include "layers/embedding/head.h"

namespace meshloom::layers {

// y = cap tanh(base(x) / cap), for example of a head's logits (Gemma 2).
class SoftCap : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "SoftCap";
    static constexpr std::string_view kAbout =
        "cap tanh(base(x) / cap): keeps the outputs of a layer between -cap and cap.";
    Child<Layer::Config> base = TiedHead::Config{};
    std::optional<double> cap = 30;  // none = outputs do not change

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer inside.", means("layer inside a wrapper")});
      v("cap", cap, {"Outputs become cap tanh(output / cap); none: they do not change.", above(0)});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SoftCap(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  std::optional<double> cap_;
};

// The vectors of `base` times `scale`; a tied head uses them without the factor (Vaswani et al., 2017; Gemma).
class ScaledEmbedding : public TokenEmbedding {
 public:
  struct Config : ConfigOf<Config, TokenEmbedding::Config> {
    static constexpr std::string_view kName = "ScaledEmbedding";
    static constexpr std::string_view kAbout =
        "An embedding whose vectors are multiplied by a number; a tied head uses them without it.";
    Child<TokenEmbedding::Config> base = Embedding::Config{};
    std::optional<double> scale;  // none = sqrt(dim)

    void fields(FieldVisitor& v) override {
      v("base", base, {"The embedding inside.", means("embedding inside a wrapper")});
      v("scale", scale, {"Factor on the vectors; none: the square root of their number of features."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  ScaledEmbedding(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor ids) override;
  Tensor attend(Context& ctx, Tensor x) override;

 private:
  TokenEmbedding* base_;
  double scale_;
};

}  // namespace meshloom::layers
