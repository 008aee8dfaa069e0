// QK-norm: a projection to queries or keys that normalises each head, with one weight for all heads (Henry et al., 2020;
// with RMSNorm: Qwen 3).
#pragma once

#include "layers/core/linear.h"
#include "layers/norm/norm.h"

namespace meshloom::layers {

class QKNormProjection : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "QKNormProjection";
    static constexpr std::string_view kAbout =
        "QK-norm: a projection to queries or keys that normalises each head (Henry et al., 2020).";
    Child<Layer::Config> projection = Linear::Config{};
    Child<Norm::Config> norm = RMSNorm::Config{};

    void fields(FieldVisitor& v) override {
      v("projection", projection, {"The projection whose heads are normalised."});
      v("norm", norm, {"The normalisation over the features of one head, with one weight for all heads."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  // Throws Error unless it is below an attention, which provides HeadDim.
  QKNormProjection(const Config& config, const Place& place);
  // x (N, input) -> (N, output)
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t output_, head_dim_ = 0;
  std::string output_axis_;
  Layer* projection_;
  Norm* norm_;
};

}  // namespace meshloom::layers
