#include "trainer/learner/sgd.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

void Sgd::Config::fields(layers::FieldVisitor& v) {
  Learner::Config::fields(v);
  v("momentum", momentum,
    {"Decay per step of the running sum of gradients; 0: none is kept.", layers::below_one(),
     layers::means("decay of a sum of gradients")});
  v("nesterov", nesterov,
    {"Whether the update looks one step ahead: the gradient plus momentum times the new sum.",
     layers::means("gradient once more in front of the sum")});
  v("weight_decay", weight_decay,
    {"Factor on the parameter that is added to its gradient.", layers::at_least(0),
     layers::means("decay in the gradient")});
}

std::vector<Slot> Sgd::Config::slots(const layers::ParameterInfo& info) const {
  return momentum > 0 ? std::vector<Slot>{slot_like(info, "m")} : std::vector<Slot>{};
}

std::vector<kernels::Tensor> Sgd::Config::update(const Update& u) const {
  const auto [p, g, rate, scale, apply, m] = kernels::inputs<6>();
  const kernels::Expr gradient = g * scale + u.info.decay * weight_decay * p;
  std::vector<kernels::Tensor> inputs{u.parameter, u.gradient, u.control.rate, u.control.scale,
                                      u.control.apply};
  if (momentum == 0)
    return kernels::elementwise(inputs, {select(apply, p - rate * gradient, p)}, u.info.type.shape);
  inputs.push_back(u.slots.at(0));
  const kernels::Expr sum = momentum * m + gradient, step = nesterov ? gradient + momentum * sum : sum;
  return kernels::elementwise(inputs, {select(apply, p - rate * step, p), select(apply, sum, m)},
                              u.info.type.shape);
}

void Sgd::Config::check() const {
  Learner::Config::check();
  require_fraction("momentum", momentum);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
  if (nesterov) require(momentum > 0, "momentum", "must be above 0 with nesterov", momentum);
}

void add_sgd_classes(layers::ClassTable& classes) { classes.add<Sgd::Config>(); }

}  // namespace meshloom::trainer
