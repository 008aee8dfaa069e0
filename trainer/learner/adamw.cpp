#include "trainer/learner/adamw.h"

#include "kernels/adamw/adamw.h"

namespace meshloom::trainer {

void AdamW::Config::fields(layers::FieldVisitor& v) {
  v("peak_learning_rate", peak_learning_rate);
  v("beta1", beta1);
  v("beta2", beta2);
  v("eps", eps);
  v("weight_decay", weight_decay);
  v("clip_norm", clip_norm);
  v("schedule", schedule);
}

double AdamW::Config::learning_rate(std::int64_t step) const {
  return peak_learning_rate.get() * schedule->factor(step);
}

std::vector<kernels::Tensor> AdamW::Config::update(const layers::ParameterInfo& info,
                                                   kernels::Tensor parameter, kernels::Tensor gradient,
                                                   const std::vector<kernels::Tensor>& slots,
                                                   kernels::Tensor control) const {
  const kernels::AdamWOptions options{beta1, beta2, eps, info.decay ? weight_decay : 0.0};
  const kernels::AdamWResult next =
      kernels::adamw(parameter, gradient, slots.at(0), slots.at(1), control, options);
  return {next.parameter, next.m, next.v};
}

void AdamW::Config::check() const {
  const auto require = [](bool good, const char* field, const char* rule, double found) {
    if (!good) throw hal::Error(std::string("AdamW.") + field, rule, std::to_string(found));
  };
  const double rate = peak_learning_rate.get();
  require(rate >= 0 && rate < 1e6, "peak_learning_rate", "must be at least 0 and below 1e6", rate);
  require(beta1 >= 0 && beta1 < 1, "beta1", "must be at least 0 and below 1", beta1);
  require(beta2 >= 0 && beta2 < 1, "beta2", "must be at least 0 and below 1", beta2);
  require(eps > 0, "eps", "must be above 0", eps);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
  require(clip_norm >= 0, "clip_norm", "must be at least 0 (0 = never)", clip_norm);
  schedule->check();
}

}  // namespace meshloom::trainer
