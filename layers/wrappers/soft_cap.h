// Around other layers: outputs held within +-cap, and embeddings made larger.
#pragma once

#include "layers/embedding/head.h"

namespace meshloom::layers {

// cap tanh(base(x) / cap), such as on the logits of a head (Gemma 2).
class SoftCap : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "SoftCap";
    static constexpr std::string_view kAbout = "cap tanh(base(x) / cap): outputs held within +-cap.";
    Child<Layer::Config> base = TiedHead::Config{};
    std::optional<double> cap = 30;  // none = outputs as they are

    void fields(FieldVisitor& v) override {
      v("base", base, {"The layer that it stands around.", means("layer inside a wrapper")});
      v("cap", cap, {"Outputs become cap tanh(output / cap); none: they stay.", above(0)});
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
    static constexpr std::string_view kAbout =
        "An embedding whose vectors are multiplied by a number; the tied head sees them as they are.";
    Child<TokenEmbedding::Config> base = Embedding::Config{};
    std::optional<double> scale;  // none = sqrt(dim)

    void fields(FieldVisitor& v) override {
      v("base", base, {"The embedding that it stands around.", means("embedding inside a wrapper")});
      v("scale", scale, {"Factor on the vectors; none: the root of their number of features."});
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
