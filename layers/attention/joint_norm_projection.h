// A projection to queries or keys whose whole result is normalised, over all heads together (OLMo 2, 2025).
#pragma once

#include "layers/core/linear.h"
#include "layers/norm/norm.h"

namespace meshloom::layers {

class JointNormProjection : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "JointNormProjection";
    static constexpr std::string_view kAbout =
        "A projection to queries or keys that is normalised over all heads together, as in OLMo 2.";
    Child<Layer::Config> projection = Linear::Config{};
    Child<Norm::Config> norm = RMSNorm::Config{};

    void fields(FieldVisitor& v) override {
      v("projection", projection, {"The projection whose result is normalised."});
      v("norm", norm, {"The normalisation over all features of the result."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  JointNormProjection(const Config& config, const Place& place);
  // x (N, input) -> (N, output)
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::string output_axis_;
  Layer* projection_;
  Norm* norm_;
};

}  // namespace meshloom::layers
