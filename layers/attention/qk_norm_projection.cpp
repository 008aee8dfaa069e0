#include "layers/attention/qk_norm_projection.h"

#include "kernels/layout/layout.h"
#include "layers/attention/multi_head_attention.h"

namespace meshloom::layers {

std::unique_ptr<Module> QKNormProjection::Config::build(const Place& place) const {
  return std::make_unique<QKNormProjection>(*this, place);
}

QKNormProjection::QKNormProjection(const Config& config, const Place& place)
    : Layer(place), output_(config.dims.output), output_axis_(config.dims.output_axis) {
  const HeadDim* head = inherited<HeadDim>();
  if (!head) fail("a QKNormProjection must be below an attention", "none");
  head_dim_ = head->size;
  if (output_ % head_dim_ != 0)
    fail("must project to a multiple of the head dimension, " + std::to_string(head_dim_),
         std::to_string(output_));
  projection_ = &child("projection", config.projection, config.dims);
  norm_ = &child("norm", config.norm, same(head_dim_, axis::kHeadDim));
}

Tensor QKNormProjection::forward(Context& ctx, Tensor x) {
  Tensor y = (*projection_)(ctx, x);
  const std::int64_t rows = y.dim(0);
  y = (*norm_)(ctx, kernels::reshape(y, {rows, output_ / head_dim_, head_dim_}));
  y = kernels::reshape(y, {rows, output_});
  return ctx.mark(y, ctx.tag(), {axis::kTokens, output_axis_});
}

void add_qk_norm_projection_classes(ClassTable& classes) { classes.add<QKNormProjection::Config>(); }

}  // namespace meshloom::layers
