// A projection of queries or keys whose heads are normalised one by one, all with the same weight (Henry et al.,
// 2020; in RMS form: Qwen 3).
#pragma once

#include "layers/core/linear.h"
#include "layers/norm/norm.h"

namespace meshloom::layers {

class NormedProjection : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "NormedProjection";
    static constexpr std::string_view kAbout =
        "A projection to queries or keys whose heads are normalised one by one (Henry et al., 2020).";
    Child<Layer::Config> projection = Linear::Config{};
    Child<Norm::Config> norm = RMSNorm::Config{};

    void fields(FieldVisitor& v) override {
      v("projection", projection, {"Makes the heads that are normalised."});
      v("norm", norm, {"The normalisation over the features of one head, with one weight for all heads."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  // Stands in an attention, which says how large a head is.
  NormedProjection(const Config& config, const Place& place);
  // x (N, input) -> (N, output)
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t output_, head_dim_ = 0;
  std::string output_axis_;
  Layer* projection_;
  Norm* norm_;
};

}  // namespace meshloom::layers
