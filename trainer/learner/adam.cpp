#include "trainer/learner/adam.h"

#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

layers::About Adam::Config::decay_about() const {
  return {"Times the parameter, added to its gradient.", layers::at_least(0),
          layers::means("decay in the gradient")};
}

std::vector<kernels::Tensor> Adam::Config::update(const Update& update) const {
  layers::ParameterInfo info = update.info;
  info.decay = 0;
  Update penalised{info, update.parameter, update.gradient, update.slots, update.control};
  if (const double decay = update.info.decay * weight_decay; decay > 0)
    // The kernel multiplies by the scale, which the penalty is not to see. Where the scale is 0 nothing is
    // applied.
    penalised.gradient = kernels::elementwise({update.gradient, update.parameter, update.control.scale},
                                              fmt::format("add(x0,div(mul({},x1),x2))", decay));
  return AdamW::Config::update(penalised);
}

layers::About AdamWIndependent::Config::decay_about() const {
  return {"What a parameter loses per step of itself, times the schedule's factor alone.",
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
  for (const auto& rule : rules)
    require(!rule->learning_rate || *rule->learning_rate > 0, "rules",
            "a factor on the learning rate is above 0; use freeze", rule->learning_rate.value_or(0));
}

}  // namespace meshloom::trainer
