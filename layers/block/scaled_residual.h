// A pre-norm layer whose branches are added to the residual stream times a number (Granite, 2024).
#pragma once

#include "layers/block/residual.h"

namespace meshloom::layers {

// h = x + residual_scale attention(norm(x));  y = h + residual_scale feed_forward(norm(h)). The other fields are those of
// TransformerLayer.
struct ScaledResidualLayer : ConfigOf<ScaledResidualLayer, ResidualLayer::Config> {
  static constexpr std::string_view kName = "ScaledResidualLayer";
  static constexpr std::string_view kAbout =
      "h = x + residual_scale attention(norm(x)), y = h + residual_scale feed_forward(norm(h)), as in "
      "Granite.";
  double residual_scale = 1;

  void fields(FieldVisitor& v) override;
  std::unique_ptr<Module> build(const Place& place) const override;
};

}  // namespace meshloom::layers
