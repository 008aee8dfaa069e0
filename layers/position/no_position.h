// Leaves queries and keys as they are (NoPE; Kazemnejad et al., 2023), for layers that have no positions in a stack of others
// that have.
#pragma once

#include "layers/position/position.h"

namespace meshloom::layers {

class NoPosition : public QueryKeyPosition {
 public:
  struct Config : ConfigOf<Config, QueryKeyPosition::Config> {
    static constexpr std::string_view kName = "NoPosition";
    static constexpr std::string_view kAbout =
        "NoPE: leaves queries and keys as they are, so that only the mask tells positions apart (Kazemnejad "
        "et "
        "al., 2023).";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  NoPosition(const Config& config, const Place& place)
      : QueryKeyPosition(place), head_dim_(config.dims.input) {}
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t head_dim_;
};

}  // namespace meshloom::layers
