#include "trainer/learner/lion.h"

#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

void Lion::Config::fields(layers::FieldVisitor& v) {
  Learner::Config::fields(v);
  v("beta1", beta1);
  v("beta2", beta2);
  v("weight_decay", weight_decay);
}

std::vector<Slot> Lion::Config::slots(const layers::ParameterInfo& info) const { return {slot_like(info, "m")}; }

std::vector<kernels::Tensor> Lion::Config::update(const Update& u) const {
  // x0 p, x1 g, x2 rate, x3 scale, x4 apply, x5 m
  const auto average = [](double beta) { return fmt::format("add(mul({},x5),mul({},mul(x1,x3)))", beta, 1 - beta); };
  const std::string step =
      fmt::format("add(sub(gt(t0,0),gt(0,t0)),mul({},x0))", u.info.decay * weight_decay);
  return kernels::elementwise(
      {u.parameter, u.gradient, u.control.rate, u.control.scale, u.control.apply, u.slots.at(0)},
      {"t0=" + average(beta1) + ";select(x4,sub(x0,mul(x2," + step + ")),x0)", "select(x4," + average(beta2) + ",x5)"},
      u.info.type.shape);
}

void Lion::Config::check() const {
  Learner::Config::check();
  require_fraction("beta1", beta1);
  require_fraction("beta2", beta2);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
}

}  // namespace meshloom::trainer
