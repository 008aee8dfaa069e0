// Settings of some of the parameters, like the parameter groups of PyTorch's optimizers.
#pragma once

#include <optional>
#include <string>

#include "layers/config/config.h"

namespace meshloom::trainer {

struct ParameterGroup : layers::ConfigOf<ParameterGroup> {
  static constexpr std::string_view kName = "ParameterGroup";
  static constexpr std::string_view kAbout = "Settings of some of the parameters.";
  std::string where = "**";  // pattern over parameter paths (layers/config/glob.h)
  std::string except;        // pattern over paths that are left out; "" = none
  bool freeze = false;       // no gradient, no optimizer state: the parameters keep their bits
  std::optional<double> weight_decay_factor;   // on the weight decay; none = unchanged
  std::optional<double> learning_rate_factor;  // on the learning rate; none = unchanged

  void fields(layers::FieldVisitor& v) override;
};

}  // namespace meshloom::trainer
