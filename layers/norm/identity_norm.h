// Returns x, for a field of a norm that is to have no effect.
#pragma once

#include "layers/norm/norm.h"

namespace meshloom::layers {

class IdentityNorm : public Norm {
 public:
  struct Config : ConfigOf<Config, Norm::Config> {
    static constexpr std::string_view kName = "IdentityNorm";
    static constexpr std::string_view kAbout = "No normalisation: returns its input.";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  IdentityNorm(const Config& config, const Place& place) : Norm(place), size_(config.dims.input) {}
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t size_;
};

}  // namespace meshloom::layers
