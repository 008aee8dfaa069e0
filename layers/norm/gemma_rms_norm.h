// The norm of Gemma (2024): x / sqrt(mean(x^2) + eps) * (1 + weight), with a weight that is initialised to zeros. Weight
// decay, if a rule asks for it, pulls the factor to one.
#pragma once

#include "layers/norm/norm.h"

namespace meshloom::layers {

class GemmaRMSNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "GemmaRMSNorm";
    static constexpr std::string_view kAbout =
        "x / sqrt(mean(x^2) + eps) * (1 + weight), with a weight initialised to zeros (Gemma, 2024).";
    double eps = 1e-6;

    void fields(FieldVisitor& v) override {
      v("eps", eps,
        {"Added to the mean square before the root is taken.", at_least(0), means("added to a variance")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  GemmaRMSNorm(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
  double eps_;
  const Parameter& weight_;  // (size)
};

}  // namespace meshloom::layers
