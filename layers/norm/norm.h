// Normalisation over the features of a token.
#pragma once

#include "layers/core/layer.h"

namespace meshloom::layers {

// The interface of layers that normalise and keep the size.
class Norm : public Layer {
 public:
  struct Config : Layer::Config {
    static constexpr std::string_view kAbout = "A normalisation over the features of a token.";
    using Built = Norm;
  };
  using Layer::Layer;
};

// x / sqrt(mean(x^2) + eps) * weight
class RMSNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "RMSNorm";
    static constexpr std::string_view kAbout = "x / sqrt(mean(x^2) + eps) * weight.";
    double eps = 1e-5;

    void fields(FieldVisitor& v) override {
      v("eps", eps,
        {"Added to the mean square before the root is taken.", at_least(0), means("added to a variance")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  RMSNorm(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
  double eps_;
  const Parameter& weight_;  // (size), initialised to ones
};

// (x - mean) / sqrt(var + eps) * weight + bias
class LayerNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "LayerNorm";
    static constexpr std::string_view kAbout = "(x - mean) / sqrt(variance + eps) * weight + bias.";
    double eps = 1e-5;

    void fields(FieldVisitor& v) override {
      v("eps", eps,
        {"Added to the variance before the root is taken.", at_least(0), means("added to a variance")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  LayerNorm(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
  double eps_;
  const Parameter& weight_;  // (size), initialised to ones
  const Parameter& bias_;    // (size), initialised to zeros
};

}  // namespace meshloom::layers
