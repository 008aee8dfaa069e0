#include "layers/attention/joint_norm_projection.h"

namespace meshloom::layers {

std::unique_ptr<Module> JointNormProjection::Config::build(const Place& place) const {
  return std::make_unique<JointNormProjection>(*this, place);
}

JointNormProjection::JointNormProjection(const Config& config, const Place& place)
    : Layer(place),
      output_axis_(config.dims.output_axis),
      projection_(&child("projection", config.projection, config.dims)),
      norm_(&child("norm", config.norm, same(config.dims.output, output_axis_))) {}

Tensor JointNormProjection::forward(Context& ctx, Tensor x) {
  const Tensor y = (*norm_)(ctx, (*projection_)(ctx, x));
  return ctx.mark(y, ctx.tag(), {axis::kTokens, output_axis_});
}

void add_joint_norm_projection_classes(ClassTable& classes) { classes.add<JointNormProjection::Config>(); }

}  // namespace meshloom::layers
