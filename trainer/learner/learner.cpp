#include "trainer/learner/learner.h"

#include <algorithm>

#include "layers/config/glob.h"

namespace meshloom::trainer {

void ParameterRule::fields(layers::FieldVisitor& v) {
  v("where", where,
    {"Pattern over the paths of parameters: * is any part of one name, ** any names, {a,b} either."});
  v("except", except, {"Pattern over the paths of parameters that the rule leaves alone; \"\": none."});
  v("freeze", freeze, {"Whether the parameter stays as it is: no gradient, no optimizer state."});
  v("decay", decay, {"Factor on the weight decay; none: as it was.", layers::at_least(0)});
  v("learning_rate", learning_rate, {"Factor on the learning rate; none: as it was.", layers::at_least(0)});
}

void Learner::Config::fields(layers::FieldVisitor& v) {
  v("peak_learning_rate", peak_learning_rate,
    {"The learning rate where the schedule's factor is 1.",
     layers::Range{.min = 0, .max = 1e6, .exclusive_max = true}});
  v("clip_norm", clip_norm,
    {"The norm of all gradients together above which they are scaled down to it; 0: never.",
     layers::at_least(0)});
  v("schedule", schedule, {"The factor on the learning rate, by step."});
  v("train", train,
    {"Which parameters learn: all, or those alone that adapters add.", layers::one_of("all", "adapters")});
  v("ema", ema, {"Moving averages kept of the parameters that learn; none: none are kept."});
  v("rules", rules,
    {"What holds for some parameters and not for others, in order; of two that set the same, the later "
     "counts."});
}

double Learner::Config::learning_rate(std::int64_t step) const {
  return peak_learning_rate.get() * schedule->factor(step);
}

std::vector<layers::ParameterInfo> Learner::Config::treat(
    std::vector<layers::ParameterInfo> parameters) const {
  if (train == "adapters")
    for (layers::ParameterInfo& info : parameters) info.frozen |= !info.adapter;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const ParameterRule& rule = *rules[i];
    const layers::Glob where(rule.where), except(rule.except.empty() ? "?" : rule.except);
    bool matched = false;
    for (layers::ParameterInfo& info : parameters) {
      if (!where.matches(info.path) || (!rule.except.empty() && except.matches(info.path))) continue;
      matched = true;
      info.frozen |= rule.freeze;
      if (rule.decay) info.decay = *rule.decay;
      if (rule.learning_rate) info.learning_rate = *rule.learning_rate;
    }
    if (!matched)
      throw hal::Error(
          "learner.rules[" + std::to_string(i) + "]", "must match at least one parameter",
          "none at '" + rule.where + "'" + (rule.except.empty() ? "" : " except '" + rule.except + "'"));
  }
  if (std::all_of(parameters.begin(), parameters.end(), [](const auto& info) { return info.frozen; }))
    throw hal::Error("learner", "at least one parameter must learn",
                     train == "adapters" ? "train=adapters, and the model has no adapter that learns"
                                         : "every one is frozen");
  return parameters;
}

void Learner::Config::check() const {
  const double rate = peak_learning_rate.get();
  require(rate >= 0 && rate < 1e6, "peak_learning_rate", "must be at least 0 and below 1e6", rate);
  require(clip_norm >= 0, "clip_norm", "must be at least 0 (0 = never)", clip_norm);
  const std::string name(class_name());
  if (!schedule) throw hal::Error(name + ".schedule", "must be set", "none");
  schedule->check();
  if (train != "all" && train != "adapters")
    throw hal::Error(name + ".train", "must be all or adapters", "'" + train + "'");
  if (ema) ema->check();
  for (const auto& rule : rules) {
    if (!rule) throw hal::Error(name + ".rules", "a rule must be set", "none");
    if (!rule->freeze && !rule->decay && !rule->learning_rate)
      throw hal::Error(name + ".rules", "a rule sets freeze, decay or learning_rate", "none of them");
    for (const std::optional<double>& factor : {rule->decay, rule->learning_rate})
      require(!factor || (*factor >= 0 && *factor < 1e6), "rules", "a factor is at least 0 and below 1e6",
              factor.value_or(0));
  }
}

void Learner::Config::require(bool good, const char* field, const char* rule, double found) const {
  if (!good) throw hal::Error(std::string(class_name()) + "." + field, rule, std::to_string(found));
}

void Learner::Config::require_fraction(const char* field, double value) const {
  require(value >= 0 && value < 1, field, "must be at least 0 and below 1", value);
}

Slot slot_like(const layers::ParameterInfo& info, const std::string& name) {
  return {name, info.type, info.axes};
}

}  // namespace meshloom::trainer
