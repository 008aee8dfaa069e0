// What holds for some parameters and not for others.
#pragma once

#include <optional>
#include <string>

#include "layers/config/config.h"

namespace meshloom::trainer {

struct ParameterGroup : layers::ConfigOf<ParameterGroup> {
  static constexpr std::string_view kName = "ParameterGroup";
  static constexpr std::string_view kAbout = "What holds for some parameters and not for others.";
  std::string where = "**";             // pattern over parameter paths (layers/config/glob.h)
  std::string except;                   // and not this one; "" = no exception
  bool freeze = false;                  // no gradient, no optimizer state: the parameter keeps its bits
  std::optional<double> decay;          // factor on weight decay; none = as it was
  std::optional<double> learning_rate;  // factor on the learning rate; none = as it was

  void fields(layers::FieldVisitor& v) override;
};

}  // namespace meshloom::trainer
