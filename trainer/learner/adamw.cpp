#include "trainer/learner/adamw.h"

#include "kernels/adamw/adamw.h"

namespace meshloom::trainer {

void AdamW::Config::fields(layers::FieldVisitor& v) {
  Learner::Config::fields(v);
  v("beta1", beta1, {"Decay per step of the running mean of gradients.", layers::below_one()});
  v("beta2", beta2, {"Decay per step of the running mean of squared gradients.", layers::below_one()});
  v("eps", eps,
    {"Added to the root of the running mean of squared gradients, which the update is divided by.",
     layers::above(0)});
  v("weight_decay", weight_decay, decay_about());
}

layers::About AdamW::Config::decay_about() const {
  return {"Fraction of a parameter that each step subtracts, times the learning rate.", layers::at_least(0),
          layers::means("decay times the learning rate")};
}

std::vector<Slot> AdamW::Config::slots(const layers::ParameterInfo& info) const {
  return {slot_like(info, "m"), slot_like(info, "v")};
}

std::vector<kernels::Tensor> AdamW::Config::update(const Update& update) const {
  const kernels::AdamWOptions options{beta1, beta2, eps, update.info.decay * weight_decay};
  const kernels::AdamWResult next = kernels::adamw(update.parameter, update.gradient, update.slots.at(0),
                                                   update.slots.at(1), update.control.all, options);
  return {next.parameter, next.m, next.v};
}

void AdamW::Config::check() const {
  Learner::Config::check();
  require_fraction("beta1", beta1);
  require_fraction("beta2", beta2);
  require(eps > 0, "eps", "must be above 0", eps);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
}

void add_adamw_classes(layers::ClassTable& classes) { classes.add<AdamW::Config>(); }

}  // namespace meshloom::trainer
