#include "layers/norm/dynamic_tanh.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {

std::unique_ptr<Module> DynamicTanh::Config::build(const Place& place) const {
  return std::make_unique<DynamicTanh>(*this, place);
}

DynamicTanh::DynamicTanh(const Config& config, const Place& place)
    : Norm(place),
      size_(config.dims.input),
      alpha_(parameter("alpha", {1}, {""}, Constant{config.initial_alpha})),
      weight_(parameter("weight", {size_}, {config.dims.input_axis}, Constant{1})),
      bias_(parameter("bias", {size_}, {config.dims.input_axis}, Constant{0})) {}

Tensor DynamicTanh::forward(Context& ctx, Tensor x) {
  check_features(x, size_);
  const auto [in, alpha, weight, bias] = kernels::inputs<4>();
  const Tensor y =
      kernels::elementwise({x, ctx.parameter(alpha_), ctx.parameter(weight_), ctx.parameter(bias_)},
                           tanh(alpha * in) * weight + bias);
  ctx.builder().tag(y, "norm");
  if (y.type().rank() == 2) ctx.builder().axes(y, {axis::kTokens, axis::kEmbed});
  return y;
}

void add_dynamic_tanh_classes(ClassTable& classes) { classes.add<DynamicTanh::Config>(); }

}  // namespace meshloom::layers
