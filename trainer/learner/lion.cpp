#include "trainer/learner/lion.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

void Lion::Config::fields(layers::FieldVisitor& v) {
  Learner::Config::fields(v);
  v("beta1", beta1,
    {"Weight of the running mean in the update's direction; this step's gradient has the rest.",
     layers::below_one()});
  v("beta2", beta2, {"Decay per step of the running mean of gradients.", layers::below_one()});
  v("weight_decay", weight_decay,
    {"Fraction of a parameter that each step subtracts, times the learning rate.", layers::at_least(0),
     layers::means("decay times the learning rate")});
}

std::vector<Slot> Lion::Config::slots(const layers::ParameterInfo& info) const {
  return {slot_like(info, "m")};
}

std::vector<kernels::Tensor> Lion::Config::update(const Update& u) const {
  const auto [p, g, rate, scale, apply, m] = kernels::inputs<6>();
  const kernels::Expr direction = beta1 * m + (1 - beta1) * (g * scale),
                      sign = (direction > 0) - (direction < 0), step = sign + u.info.decay * weight_decay * p,
                      average = beta2 * m + (1 - beta2) * (g * scale);
  return kernels::elementwise(
      {u.parameter, u.gradient, u.control.rate, u.control.scale, u.control.apply, u.slots.at(0)},
      {select(apply, p - rate * step, p), select(apply, average, m)}, u.info.type.shape);
}

void Lion::Config::check() const {
  Learner::Config::check();
  require_fraction("beta1", beta1);
  require_fraction("beta2", beta2);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
}

void add_lion_classes(layers::ClassTable& classes) { classes.add<Lion::Config>(); }

}  // namespace meshloom::trainer
