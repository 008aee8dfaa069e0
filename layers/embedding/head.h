// Output heads. An untied head is a Linear.
#pragma once

#include "layers/core/layer.h"
#include "layers/embedding/embedding.h"

namespace meshloom::layers {

// The logits are products with the embedding's vectors, so that the head has no parameters (Press and Wolf, 2017).
class TiedHead : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "TiedHead";
    static constexpr std::string_view kAbout =
        "A head whose weight is that of the embedding (Press and Wolf, 2017).";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  TiedHead(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t input_;
  TokenEmbedding* embedding_ = nullptr;
};

}  // namespace meshloom::layers
