#include "layers/router_regularizer.h"

#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/softmax/softmax.h"
#include "layers/axes.h"

namespace meshloom::layers {
namespace {

// weight * value, for the model to add and to report.
void leave(Context& ctx, Tensor value, double weight) {
  ctx.summary("loss", value);
  ctx.output("aux_loss", kernels::scale(value, weight));
}

}  // namespace

std::unique_ptr<Module> LoadBalance::Config::build(const Place& place) const {
  return std::make_unique<LoadBalance>(*this, place);
}

void LoadBalance::observe(Context& ctx, const Routing& r) {
  const Tensor products = kernels::mul(r.load, kernels::reduce_sum(r.probabilities, 1));
  const double tokens = static_cast<double>(r.tokens);
  leave(ctx, kernels::scale(kernels::reduce_sum(products, 0), 1 / (r.mean_load() * tokens)), weight_);
}

std::unique_ptr<Module> RouterZ::Config::build(const Place& place) const {
  return std::make_unique<RouterZ>(*this, place);
}

void RouterZ::observe(Context& ctx, const Routing& r) {
  const Tensor lse = kernels::softmax(r.logits).lse;
  const Tensor sum = kernels::reduce_sum(kernels::mul(lse, lse), 0);
  leave(ctx, kernels::scale(sum, 1 / static_cast<double>(r.tokens)), weight_);
}

std::unique_ptr<Module> BiasBalance::Config::build(const Place& place) const {
  return std::make_unique<BiasBalance>(*this, place);
}

BiasBalance::BiasBalance(const Config& config, const Place& place)
    : RouterRegularizer(place),
      rate_(config.rate),
      bias_(state("bias", {kernels::DType::f32, {config.dims.experts}}, {axis::kExpert})) {}

void BiasBalance::observe(Context& ctx, const Routing& r) {
  const std::string mean = fmt::format("{}", r.mean_load());
  ctx.update(bias_, kernels::elementwise({ctx.state(bias_), r.load},
                                         fmt::format("add(x0,mul({0},sub(gt({1},x1),gt(x1,{1}))))", rate_, mean)));
}

void add_router_regularizer_classes(ClassTable& classes) {
  classes.add<LoadBalance::Config>();
  classes.add<RouterZ::Config>();
  classes.add<BiasBalance::Config>();
}

}  // namespace meshloom::layers
