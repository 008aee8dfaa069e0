#include "layers/moe/router_regularizer.h"

#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/softmax/softmax.h"
#include "layers/core/axes.h"

namespace meshloom::layers {
namespace {

// Reports the value, and leaves weight * value for the model to add to its loss.
void add_aux_loss(Context& ctx, Tensor value, double weight) {
  ctx.summary("loss", value);
  ctx.output("aux_loss", kernels::scale(value, weight));
}

}  // namespace

Tensor RouterRegularizer::Routing::sum(Tensor rows) const {
  const bool single = rows.type().rank() == 1;
  if (!mask) return kernels::reduce_sum(rows, single ? 0 : 1);
  if (single) return kernels::reduce_sum(kernels::mul(rows, mask), 0);
  return kernels::reshape(kernels::matmul(kernels::reshape(mask, {1, rows.dim(0)}), rows), {rows.dim(1)});
}

Tensor RouterRegularizer::Routing::per_token(Tensor x, double factor, int power) const {
  if (!mask) return kernels::scale(x, factor / std::pow(static_cast<double>(logits.dim(0)), power));
  const auto [value, tokens] = kernels::inputs<2>();
  kernels::Expr quotient = factor * value;
  for (; power > 0; --power) quotient = quotient / max(tokens, 1);
  return kernels::elementwise({x, count}, quotient);
}

std::unique_ptr<Module> LoadBalancingLoss::Config::build(const Place& place) const {
  return std::make_unique<LoadBalancingLoss>(*this, place);
}

void LoadBalancingLoss::observe(Context& ctx, const Routing& r) {
  const Tensor products = kernels::mul(r.load, r.sum(r.probabilities));
  add_aux_loss(ctx, r.per_token(kernels::reduce_sum(products, 0), 1 / r.choices(), 2), weight_);
}

std::unique_ptr<Module> RouterZLoss::Config::build(const Place& place) const {
  return std::make_unique<RouterZLoss>(*this, place);
}

void RouterZLoss::observe(Context& ctx, const Routing& r) {
  const Tensor lse = kernels::softmax(r.logits).lse;
  add_aux_loss(ctx, r.per_token(r.sum(kernels::mul(lse, lse))), weight_);
}

std::unique_ptr<Module> LossFreeBalancing::Config::build(const Place& place) const {
  return std::make_unique<LossFreeBalancing>(*this, place);
}

LossFreeBalancing::LossFreeBalancing(const Config& config, const Place& place)
    : RouterRegularizer(place),
      rate_(config.rate),
      bias_(state("bias", {kernels::DType::f32, {config.dims.experts}}, {axis::kExpert})) {}

void LossFreeBalancing::observe(Context& ctx, const Routing& r) {
  std::vector<Tensor> inputs{ctx.state(bias_), r.load};
  const auto [bias, load, tokens] = kernels::inputs<3>();
  kernels::Expr mean = r.choices() * static_cast<double>(r.logits.dim(0));
  if (r.mask) {
    inputs.push_back(r.count);
    mean = r.choices() * tokens;
  }
  ctx.update(bias_, kernels::elementwise(inputs, bias + rate_ * ((mean > load) - (load > mean))));
}

void add_router_regularizer_classes(ClassTable& classes) {
  classes.add<LoadBalancingLoss::Config>();
  classes.add<RouterZLoss::Config>();
  classes.add<LossFreeBalancing::Config>();
}

}  // namespace meshloom::layers
