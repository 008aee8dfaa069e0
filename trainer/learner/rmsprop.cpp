#include "trainer/learner/rmsprop.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

void RMSprop::Config::fields(layers::FieldVisitor& v) {
  Learner::Config::fields(v);
  v("alpha", alpha, {"Decay per step of the running mean of squared gradients.", layers::below_one()});
  v("eps", eps,
    {"Added to the root of the running mean of squared gradients, which the update is divided by.",
     layers::above(0)});
  v("momentum", momentum,
    {"Decay per step of the running sum of updates; 0: none is kept.", layers::below_one(),
     layers::means("decay of a sum of updates")});
  v("weight_decay", weight_decay,
    {"Factor on the parameter that is added to its gradient.", layers::at_least(0),
     layers::means("decay in the gradient")});
}

std::vector<Slot> RMSprop::Config::slots(const layers::ParameterInfo& info) const {
  std::vector<Slot> slots{slot_like(info, "v")};
  if (momentum > 0) slots.push_back(slot_like(info, "m"));
  return slots;
}

std::vector<kernels::Tensor> RMSprop::Config::update(const Update& u) const {
  using kernels::Tensor;
  const kernels::Shape& shape = u.info.type.shape;
  // A step that is not applied leaves every state as it was.
  const auto [p, g, scale, apply, v] = kernels::inputs<5>();
  const kernels::Expr gradient = g * scale + u.info.decay * weight_decay * p,
                      mean_square = alpha * v + (1 - alpha) * (gradient * gradient);
  const std::vector<Tensor> scaled =
      kernels::elementwise({u.parameter, u.gradient, u.control.scale, u.control.apply, u.slots.at(0)},
                           {gradient / (sqrt(mean_square) + eps), select(apply, mean_square, v)}, shape);
  const auto [parameter, step, rate, applied, m] = kernels::inputs<5>();
  std::vector<Tensor> inputs{u.parameter, scaled[0], u.control.rate, u.control.apply};
  if (momentum == 0)
    return {kernels::elementwise(inputs, select(applied, parameter - rate * step, parameter)), scaled[1]};
  inputs.push_back(u.slots.at(1));
  const kernels::Expr sum = momentum * m + step;
  const std::vector<Tensor> next = kernels::elementwise(
      inputs, {select(applied, parameter - rate * sum, parameter), select(applied, sum, m)}, shape);
  return {next[0], scaled[1], next[1]};
}

void RMSprop::Config::check() const {
  Learner::Config::check();
  require_fraction("alpha", alpha);
  require(eps > 0, "eps", "must be above 0", eps);
  require_fraction("momentum", momentum);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
}

void add_rmsprop_classes(layers::ClassTable& classes) { classes.add<RMSprop::Config>(); }

}  // namespace meshloom::trainer
