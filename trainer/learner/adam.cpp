#include "trainer/learner/adam.h"

#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

layers::About Adam::Config::decay_about() const {
  return {"Factor on the parameter that is added to its gradient.", layers::at_least(0),
          layers::means("decay in the gradient")};
}

std::vector<kernels::Tensor> Adam::Config::update(const Update& update) const {
  layers::ParameterInfo info = update.info;
  info.decay = 0;
  Update penalised{info, update.parameter, update.gradient, update.slots, update.control};
  if (const double decay = update.info.decay * weight_decay; decay > 0) {
    const auto [g, p, scale] = kernels::inputs<3>();
    // The kernel multiplies by the scale, which must not affect the penalty. Where the scale is 0 no update
    // is applied.
    penalised.gradient = kernels::elementwise({update.gradient, update.parameter, update.control.scale},
                                              g + decay * p / scale);
  }
  return AdamW::Config::update(penalised);
}

layers::About AdamWIndependent::Config::decay_about() const {
  return {"Fraction of a parameter that each step subtracts, times the schedule's factor alone.",
          layers::at_least(0), layers::means("decay times the schedule's factor")};
}

std::vector<kernels::Tensor> AdamWIndependent::Config::update(const Update& update) const {
  layers::ParameterInfo info = update.info;
  info.decay /= peak_learning_rate.get() * info.learning_rate;  // the kernel multiplies by the rate
  return AdamW::Config::update({info, update.parameter, update.gradient, update.slots, update.control});
}

void AdamWIndependent::Config::check() const {
  AdamW::Config::check();
  require(peak_learning_rate.get() > 0, "peak_learning_rate", "must be above 0", peak_learning_rate.get());
  for (const auto& group : parameter_groups)
    require(!group->learning_rate_factor || *group->learning_rate_factor > 0, "parameter_groups",
            "learning_rate_factor must be above 0; freeze stops the parameters",
            group->learning_rate_factor.value_or(0));
}

void add_adam_classes(layers::ClassTable& classes) {
  classes.add<Adam::Config>();
  classes.add<AdamWIndependent::Config>();
}

}  // namespace meshloom::trainer
