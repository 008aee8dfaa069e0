#include "layers/scaled_rotary.h"

namespace meshloom::layers {

void ScaledRotaryPosition::Config::fields(FieldVisitor& v) {
  v("theta", theta);
  v("factor", factor);
  v("low_frequency_factor", low_frequency_factor);
  v("high_frequency_factor", high_frequency_factor);
  v("original_length", original_length);
}

std::unique_ptr<Module> ScaledRotaryPosition::Config::build(const Place& place) const {
  return std::make_unique<ScaledRotaryPosition>(*this, place);
}

ScaledRotaryPosition::ScaledRotaryPosition(const Config& config, const Place& place)
    : QueryKeyPosition(place), head_dim_(config.dims.input) {
  if (!(config.theta > 0)) fail("theta is positive", std::to_string(config.theta));
  if (!(config.factor >= 1)) fail("factor is at least 1", std::to_string(config.factor));
  if (!(config.low_frequency_factor > 0 && config.high_frequency_factor > config.low_frequency_factor))
    fail("0 < low_frequency_factor < high_frequency_factor", std::to_string(config.low_frequency_factor) + " and " +
                                                                 std::to_string(config.high_frequency_factor));
  if (config.original_length <= 0) fail("original_length is positive", std::to_string(config.original_length));
  if (head_dim_ % 2 != 0) fail("rotates an even number of features", std::to_string(head_dim_));
  options_.theta = config.theta;
  options_.scaling = kernels::RopeScaling{config.factor, config.low_frequency_factor, config.high_frequency_factor,
                                          static_cast<double>(config.original_length)};
}

Tensor ScaledRotaryPosition::forward(Context& ctx, Tensor x) {
  check_features(x, head_dim_);
  const Tensor y = kernels::rope(x, options_);
  const std::vector<std::string> axes = ctx.builder().program().value(x.id).axes;
  return axes.empty() ? y : ctx.mark(y, ctx.tag(), axes);
}

void add_scaled_rotary_classes(ClassTable& classes) { classes.add<ScaledRotaryPosition::Config>(); }

}  // namespace meshloom::layers
