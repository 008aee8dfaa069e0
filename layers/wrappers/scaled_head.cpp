#include "layers/wrappers/scaled_head.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {

std::unique_ptr<Module> ScaledHead::Config::build(const Place& place) const {
  return std::make_unique<ScaledHead>(*this, place);
}

ScaledHead::ScaledHead(const Config& config, const Place& place)
    : Layer(place), base_(&inner(config.base, config.dims)), divisor_(config.divisor) {
  if (!(divisor_ > 0)) fail("divisor must be positive", std::to_string(divisor_));
}

Tensor ScaledHead::forward(Context& ctx, Tensor x) {
  return kernels::elementwise({base_->forward(ctx, x)}, kernels::Expr::input(0) / divisor_);
}

void add_scaled_head_classes(ClassTable& classes) { classes.add<ScaledHead::Config>(); }

}  // namespace meshloom::layers
