// Around other layers: outputs held within +-cap, and embeddings made larger.
#pragma once

#include "layers/head.h"

namespace meshloom::layers {

// cap tanh(base(x) / cap), such as on the logits of a head (Gemma 2).
class SoftCap : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "SoftCap";
    Child<Layer::Config> base = TiedHead::Config{};
    std::optional<double> cap = 30;  // none = outputs as they are

    void fields(FieldVisitor& v) override {
      v("base", base);
      v("cap", cap);
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SoftCap(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  Layer* base_;
  std::optional<double> cap_;
};

// Rows of `base` times `scale`; the tied head sees them as they are (Vaswani et al., 2017; Gemma).
class ScaledEmbedding : public TokenEmbedding {
 public:
  struct Config : ConfigOf<Config, TokenEmbedding::Config> {
    static constexpr std::string_view kName = "ScaledEmbedding";
    Child<TokenEmbedding::Config> base = Embedding::Config{};
    std::optional<double> scale;  // none = sqrt(dim)

    void fields(FieldVisitor& v) override {
      v("base", base);
      v("scale", scale);
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
