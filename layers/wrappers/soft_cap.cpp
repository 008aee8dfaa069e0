#include "layers/wrappers/soft_cap.h"

#include <cmath>

#include "kernels/elementwise/elementwise.h"

namespace meshloom::layers {

std::unique_ptr<Module> SoftCap::Config::build(const Place& place) const {
  return std::make_unique<SoftCap>(*this, place);
}

SoftCap::SoftCap(const Config& config, const Place& place)
    : Layer(place), base_(&inner(config.base, config.dims)), cap_(config.cap) {
  if (cap_ && !(*cap_ > 0)) fail("cap must be positive", std::to_string(*cap_));
}

Tensor SoftCap::forward(Context& ctx, Tensor x) {
  const Tensor y = base_->forward(ctx, x);
  return cap_ ? kernels::elementwise({y}, *cap_ * tanh(1 / *cap_ * kernels::Expr::input(0))) : y;
}

std::unique_ptr<Module> ScaledEmbedding::Config::build(const Place& place) const {
  return std::make_unique<ScaledEmbedding>(*this, place);
}

ScaledEmbedding::ScaledEmbedding(const Config& config, const Place& place)
    : TokenEmbedding(place),
      base_(&inner(config.base, config.dims)),
      scale_(config.scale.value_or(std::sqrt(static_cast<double>(config.dims.dim)))) {}

Tensor ScaledEmbedding::forward(Context& ctx, Tensor ids) {
  return ctx.mark(kernels::scale(base_->forward(ctx, ids), scale_), ctx.tag(),
                  {axis::kBatch, axis::kSeq, axis::kEmbed});
}

Tensor ScaledEmbedding::attend(Context& ctx, Tensor x) { return base_->attend(ctx, x); }

void add_soft_cap_classes(ClassTable& classes) {
  classes.add<SoftCap::Config>();
  classes.add<ScaledEmbedding::Config>();
}

}  // namespace meshloom::layers
