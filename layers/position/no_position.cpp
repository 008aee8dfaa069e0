#include "layers/position/no_position.h"

namespace meshloom::layers {

std::unique_ptr<Module> NoPosition::Config::build(const Place& place) const {
  return std::make_unique<NoPosition>(*this, place);
}

Tensor NoPosition::forward(Context&, Tensor x) {
  check_features(x, head_dim_);
  return x;
}

void add_no_position_classes(ClassTable& classes) { classes.add<NoPosition::Config>(); }

}  // namespace meshloom::layers
