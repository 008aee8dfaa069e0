// Further forms of norm.
#pragma once

#include "layers/norm/norm.h"

namespace meshloom::layers {

// x / sqrt(mean(x^2) + eps) * (1 + weight), the weight starting as zeros: Gemma's (2024). Weight decay, where
// a rule asks for it, pulls such a scale to one.
class GemmaRMSNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "GemmaRMSNorm";
    static constexpr std::string_view kAbout =
        "x / sqrt(mean(x^2) + eps) * (1 + weight), the weight starting as zeros (Gemma, 2024).";
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

// x: a place for a norm that stays empty.
class IdentityNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "IdentityNorm";
    static constexpr std::string_view kAbout = "A place for a norm that stays empty.";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  IdentityNorm(const Config& config, const Place& place) : Norm(place), size_(config.dims.input) {}
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
};

}  // namespace meshloom::layers
