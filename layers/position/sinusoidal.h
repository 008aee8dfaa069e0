// Sinusoidal position embeddings (Vaswani et al., 2017).
#pragma once

#include "layers/position/position.h"

namespace meshloom::layers {

// Adds sin(s theta^(-2p/dim)) to feature 2p of position s, and the cosine to feature 2p + 1; with pairing "half", to the
// features p and p + dim/2. It has no parameters, and no limit on the length of sequences.
class SinusoidalPosition : public EmbeddingPosition {
 public:
  struct Config : ConfigOf<Config, EmbeddingPosition::Config> {
    static constexpr std::string_view kName = "SinusoidalPosition";
    static constexpr std::string_view kAbout =
        "Adds sines and cosines of the position (Vaswani et al., 2017).";
    double theta = 10000;
    std::string pairing = "interleaved";

    void fields(FieldVisitor& v) override {
      v("theta", theta,
        {"The base of the wavelengths: that of pair p of D features is 2 pi theta^(2p/D) positions.",
         above(0)});
      v("pairing", pairing,
        {"Which features get the sine and the cosine of a wavelength: p and p + D/2, or 2p and 2p + 1.",
         one_of("half", "interleaved")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SinusoidalPosition(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t dim_;
  kernels::RopeOptions options_;
};

}  // namespace meshloom::layers
