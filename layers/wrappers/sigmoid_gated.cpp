#include "layers/wrappers/sigmoid_gated.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/iota/iota.h"
#include "kernels/layout/layout.h"
#include "kernels/moe_routing/moe_routing.h"

namespace meshloom::layers {

std::unique_ptr<Module> SigmoidGated::Config::build(const Place& place) const {
  return std::make_unique<SigmoidGated>(*this, place);
}

SigmoidGated::SigmoidGated(const Config& config, const Place& place)
    : Layer(place),
      dims_(config.dims),
      base_(&child("base", config.base, config.dims)),
      gate_(&child("gate", config.gate, {config.dims.input, 1, config.dims.input_axis, ""})) {}

Tensor SigmoidGated::forward(Context& ctx, Tensor x) {
  check_features(x, dims_.input);
  kernels::Shape shape = x.shape();
  const std::int64_t rows = x.type().elements() / dims_.input;
  if (shape.size() != 2) x = kernels::reshape(x, {rows, dims_.input});
  const Tensor gate = kernels::elementwise({(*gate_)(ctx, x)}, sigmoid(kernels::Expr::input(0)));
  // Multiplies row n by gate n: a combination of groups of one row each, in their places.
  const Tensor own = kernels::reshape(kernels::iota(ctx.builder(), rows), {rows, 1});
  const Tensor y = kernels::moe_combine((*base_)(ctx, x), own, gate);
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims_.output_axis});
  if (shape.size() == 2) return y;
  shape.back() = dims_.output;
  return kernels::reshape(y, shape);
}

void add_sigmoid_gated_classes(ClassTable& classes) { classes.add<SigmoidGated::Config>(); }

}  // namespace meshloom::layers
