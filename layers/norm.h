// Normalisation over the features of one token.
#pragma once

#include "layers/layer.h"

namespace meshloom::layers {

// The interface: a layer that keeps the size.
class Norm : public Layer {
 public:
  struct Config : Layer::Config {
    using Built = Norm;
  };
  using Layer::Layer;
};

// x / sqrt(mean(x^2) + eps) * weight
class RMSNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "RMSNorm";
    double eps = 1e-5;

    void fields(FieldVisitor& v) override { v("eps", eps); }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  RMSNorm(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
  double eps_;
  const Parameter& weight_;  // (size), starts as ones
};

// (x - mean) / sqrt(var + eps) * weight + bias
class LayerNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "LayerNorm";
    double eps = 1e-5;

    void fields(FieldVisitor& v) override { v("eps", eps); }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  LayerNorm(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
  double eps_;
  const Parameter& weight_;  // (size), starts as ones
  const Parameter& bias_;    // (size), starts as zeros
};

}  // namespace meshloom::layers
