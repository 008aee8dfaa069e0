#include "trainer/learner/learner.h"

#include <algorithm>

#include "layers/config/glob.h"
#include "layers/core/axes.h"

namespace meshloom::trainer {

void ParameterGroup::fields(layers::FieldVisitor& v) {
  v("where", where,
    {"Pattern over the paths of parameters: * is any part of one name, ** any names, {a,b} either."});
  v("except", except, {"Pattern over the paths of parameters that are not in the group; \"\": none."});
  v("freeze", freeze, {"Whether the parameters keep their values: no gradient, no optimizer state."});
  v("weight_decay_factor", weight_decay_factor,
    {"Factor on the weight decay; none: unchanged.", layers::at_least(0), layers::formerly("decay")});
  v("learning_rate_factor", learning_rate_factor,
    {"Factor on the learning rate; none: unchanged.", layers::at_least(0),
     layers::formerly("learning_rate")});
}

void Learner::Config::fields(layers::FieldVisitor& v) {
  v("peak_learning_rate", peak_learning_rate,
    {"The learning rate when the schedule's factor is 1.",
     layers::Range{.min = 0, .max = 1e6, .exclusive_max = true}});
  v("clip_norm", clip_norm,
    {"The global norm of the gradients above which they are scaled down to it; 0: never.",
     layers::at_least(0)});
  v("schedule", schedule, {"The factor on the learning rate, by step."});
  v("train", train,
    {"Which parameters are trained: all, or only those that adapters add.",
     layers::one_of("all", "adapters")});
  v("ema", ema, {"Moving averages of the trained parameters; none: none are kept."});
  v("parameter_groups", parameter_groups,
    {"Settings of some parameters, in order; where two groups set the same, the later one wins.",
     layers::formerly("rules")});
}

double Learner::Config::learning_rate(std::int64_t step) const {
  return peak_learning_rate.get() * schedule->factor(step);
}

std::vector<layers::ParameterInfo> Learner::Config::apply_parameter_groups(
    std::vector<layers::ParameterInfo> parameters) const {
  if (train == "adapters")
    for (layers::ParameterInfo& info : parameters) info.frozen |= !info.adapter;
  for (std::size_t i = 0; i < parameter_groups.size(); ++i) {
    const ParameterGroup& group = *parameter_groups[i];
    const layers::Glob where(group.where), except(group.except.empty() ? "?" : group.except);
    bool matched = false;
    for (layers::ParameterInfo& info : parameters) {
      if (!where.matches(info.path) || (!group.except.empty() && except.matches(info.path))) continue;
      matched = true;
      info.frozen |= group.freeze;
      if (group.weight_decay_factor) info.decay = *group.weight_decay_factor;
      if (group.learning_rate_factor) info.learning_rate = *group.learning_rate_factor;
    }
    if (!matched)
      throw hal::Error(
          "learner.parameter_groups[" + std::to_string(i) + "]", "must match at least one parameter",
          "none at '" + group.where + "'" + (group.except.empty() ? "" : " except '" + group.except + "'"));
  }
  if (std::all_of(parameters.begin(), parameters.end(), [](const auto& info) { return info.frozen; }))
    throw hal::Error("learner", "at least one parameter must be trainable",
                     train == "adapters" ? "train=adapters, but the model has no trainable adapter"
                                         : "all parameters are frozen");
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
  for (const auto& group : parameter_groups) {
    if (!group) throw hal::Error(name + ".parameter_groups", "a group must be set", "none");
    if (!group->freeze && !group->weight_decay_factor && !group->learning_rate_factor)
      throw hal::Error(name + ".parameter_groups",
                       "a group must set freeze, weight_decay_factor or learning_rate_factor",
                       "none of them");
    for (const std::optional<double>& factor : {group->weight_decay_factor, group->learning_rate_factor})
      require(!factor || (*factor >= 0 && *factor < 1e6), "parameter_groups",
              "a factor must be at least 0 and below 1e6", factor.value_or(0));
  }
}

void Learner::Config::require(bool good, const char* field, const char* rule, double found) const {
  if (!good) throw hal::Error(std::string(class_name()) + "." + field, rule, std::to_string(found));
}

void Learner::Config::require_fraction(const char* field, double value) const {
  require(value >= 0 && value < 1, field, "must be at least 0 and below 1", value);
}

bool holds_matrices(const layers::ParameterInfo& info) {
  return info.type.rank() == 2 || (info.type.rank() == 3 && info.axes.at(0) == layers::axis::kExpert);
}

Slot slot_like(const layers::ParameterInfo& info, const std::string& name) {
  return {name, info.type, info.axes};
}

void add_parameter_group_classes(layers::ClassTable& classes) { classes.add<ParameterGroup>(); }

}  // namespace meshloom::trainer
