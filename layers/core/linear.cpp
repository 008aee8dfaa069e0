#include "layers/core/linear.h"

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
  return map_rows(ctx, x, dims_, [&](Tensor rows) {
    return project(ctx, rows, ctx.parameter(weight_), bias_ ? ctx.parameter(*bias_) : Tensor{});
  });
}

LinearParameters Linear::linear_parameters() const {
  return weight_.type.rank() == 2 ? LinearParameters{&weight_, bias_} : LinearParameters{};
}

void add_linear_classes(ClassTable& classes) { classes.add<Linear::Config>(); }

}  // namespace meshloom::layers
