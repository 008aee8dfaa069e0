#include "trainer/learner/lion.h"

#include <fmt/format.h>

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
  // x0 p, x1 g, x2 rate, x3 scale, x4 apply, x5 m
  const auto average = [](double beta) {
    return fmt::format("add(mul({},x5),mul({},mul(x1,x3)))", beta, 1 - beta);
  };
  const std::string step = fmt::format("add(sub(gt(t0,0),gt(0,t0)),mul({},x0))", u.info.decay * weight_decay);
  return kernels::elementwise(
      {u.parameter, u.gradient, u.control.rate, u.control.scale, u.control.apply, u.slots.at(0)},
      {"t0=" + average(beta1) + ";select(x4,sub(x0,mul(x2," + step + ")),x0)",
       "select(x4," + average(beta2) + ",x5)"},
      u.info.type.shape);
}

void Lion::Config::check() const {
  Learner::Config::check();
  require_fraction("beta1", beta1);
  require_fraction("beta2", beta2);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
}

}  // namespace meshloom::trainer
