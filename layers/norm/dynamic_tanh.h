// What can stand in for a norm without any statistics (Zhu et al., 2025, "Transformers without Normalization").
#pragma once

#include "layers/norm/norm.h"

namespace meshloom::layers {

// tanh(alpha x) * weight + bias, with one learned alpha for all features
class DynamicTanh : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "DynamicTanh";
    static constexpr std::string_view kAbout =
        "tanh(alpha x) * weight + bias with a learned alpha, in place of a norm (Zhu et al., 2025).";
    double initial_alpha = 0.5;

    void fields(FieldVisitor& v) override {
      v("initial_alpha", initial_alpha, {"What alpha is initialised to.", above(0)});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  DynamicTanh(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
  const Parameter& alpha_;   // (1)
  const Parameter& weight_;  // (size), initialised to ones
  const Parameter& bias_;    // (size), initialised to zeros
};

}  // namespace meshloom::layers
