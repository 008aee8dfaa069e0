#include "layers/core/linear.h"

#include "kernels/layout/layout.h"
#include "layers/core/experts.h"

namespace meshloom::layers {

std::unique_ptr<Module> Linear::Config::build(const Place& place) const {
  return std::make_unique<Linear>(*this, place);
}

Linear::Linear(const Config& config, const Place& place)
    : Layer(place),
      dims_(config.dims),
      weight_(parameter("weight", {dims_.output, dims_.input}, {dims_.output_axis, dims_.input_axis},
                        config.init)) {
  if (config.bias) bias_ = &parameter("bias", {dims_.output}, {dims_.output_axis}, Constant{0});
}

Tensor Linear::forward(Context& ctx, Tensor x) {
  check_features(x, dims_.input);
  kernels::Shape shape = x.shape();
  if (shape.size() != 2) x = kernels::reshape(x, {x.type().elements() / dims_.input, dims_.input});
  const Tensor y = project(ctx, x, ctx.parameter(weight_), bias_ ? ctx.parameter(*bias_) : Tensor{});
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims_.output_axis});
  if (shape.size() == 2) return y;
  shape.back() = dims_.output;
  return kernels::reshape(y, shape);
}

void add_linear_classes(ClassTable& classes) { classes.add<Linear::Config>(); }

}  // namespace meshloom::layers
