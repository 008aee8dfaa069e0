#include "layers/norm/norm.h"

#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"

namespace meshloom::layers {

namespace {

Tensor label(Context& ctx, Tensor y) {
  ctx.builder().tag(y, "norm");
  if (y.type().rank() == 2) ctx.builder().axes(y, {axis::kTokens, axis::kEmbed});
  return y;
}

}  // namespace

std::unique_ptr<Module> RMSNorm::Config::build(const Place& place) const {
  return std::make_unique<RMSNorm>(*this, place);
}

RMSNorm::RMSNorm(const Config& config, const Place& place)
    : Norm(place),
      size_(config.dims.input),
      eps_(config.eps),
      weight_(parameter("weight", {size_}, {config.dims.input_axis}, Constant{1})) {}

Tensor RMSNorm::forward(Context& ctx, Tensor x) {
  check_features(x, size_);
  return label(ctx, kernels::rms_norm(x, ctx.parameter(weight_), eps_));
}

std::unique_ptr<Module> LayerNorm::Config::build(const Place& place) const {
  return std::make_unique<LayerNorm>(*this, place);
}

LayerNorm::LayerNorm(const Config& config, const Place& place)
    : Norm(place),
      size_(config.dims.input),
      eps_(config.eps),
      weight_(parameter("weight", {size_}, {config.dims.input_axis}, Constant{1})),
      bias_(parameter("bias", {size_}, {config.dims.input_axis}, Constant{0})) {}

Tensor LayerNorm::forward(Context& ctx, Tensor x) {
  check_features(x, size_);
  return label(ctx, kernels::layer_norm(x, ctx.parameter(weight_), ctx.parameter(bias_), eps_));
}

void add_norm_classes(ClassTable& classes) {
  classes.add<RMSNorm::Config>();
  classes.add<LayerNorm::Config>();
}

}  // namespace meshloom::layers
