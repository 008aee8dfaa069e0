#include "trainer/learner/schedules.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace meshloom::trainer {
namespace {

// The fraction of the way from `begin` to `end`, clamped to [0, 1].
double done(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (step >= end) return 1;
  return std::max(0.0, static_cast<double>(step - begin) / static_cast<double>(end - begin));
}

}  // namespace

double warmup(std::int64_t step, std::int64_t warmup_steps) {
  return step < warmup_steps ? static_cast<double>(step) / static_cast<double>(warmup_steps) : 1;
}

double WarmupThen::factor(std::int64_t step) const {
  return step < warmup_steps ? warmup(step, warmup_steps) : after(step);
}

void WarmupThen::check() const {
  require(warmup_steps >= 0, "warmup_steps", "must be at least 0", static_cast<double>(warmup_steps));
}

void WarmupThen::require(bool good, const char* field, const char* rule, double found) const {
  if (!good) throw hal::Error(std::string(class_name()) + "." + field, rule, std::to_string(found));
}

void WarmupPolynomial::fields(layers::FieldVisitor& v) {
  WarmupThen::fields(v);
  add_end_fields(v, total_steps, final_fraction);
  v("power", power, {"The exponent of the decay; 1: a straight line.", layers::above(0)});
}

double WarmupPolynomial::after(std::int64_t step) const {
  return final_fraction + (1 - final_fraction) * std::pow(1 - done(step, warmup_steps, total_steps), power);
}

void WarmupPolynomial::check() const {
  WarmupThen::check();
  require(total_steps.get() >= 1, "total_steps", "must be at least 1",
          static_cast<double>(total_steps.get()));
  require(final_fraction >= 0 && final_fraction <= 1, "final_fraction", "must be between 0 and 1",
          final_fraction);
  require(power > 0, "power", "must be above 0", power);
}

double WarmupInverseSqrt::after(std::int64_t step) const {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(1, warmup_steps)) /
                   static_cast<double>(std::max<std::int64_t>(1, step)));
}

void WarmupStableDecay::fields(layers::FieldVisitor& v) {
  WarmupThen::fields(v);
  v("total_steps", total_steps,
    {"The step from which on the factor is final_fraction.", layers::at_least(1),
     layers::means("steps of the schedule")});
  v("decay_steps", decay_steps,
    {"The number of last steps over which the learning rate falls.", layers::at_least(1)});
  v("final_fraction", final_fraction,
    {"The learning rate at the end, as a fraction of the peak.", layers::between(0, 1),
     layers::means("factor at the end")});
}

double WarmupStableDecay::after(std::int64_t step) const {
  return 1 - (1 - final_fraction) * done(step, total_steps.get() - decay_steps.get(), total_steps);
}

void WarmupStableDecay::check() const {
  WarmupThen::check();
  require(decay_steps.get() >= 1, "decay_steps", "must be at least 1",
          static_cast<double>(decay_steps.get()));
  require(warmup_steps + decay_steps.get() <= total_steps.get(), "total_steps",
          "must be at least warmup_steps + decay_steps", static_cast<double>(total_steps.get()));
  require(final_fraction >= 0 && final_fraction <= 1, "final_fraction", "must be between 0 and 1",
          final_fraction);
}

void WarmupPiecewise::fields(layers::FieldVisitor& v) {
  WarmupThen::fields(v);
  v("boundaries", boundaries,
    {"The steps at which the next factor begins, in rising order.", layers::at_least(0)});
  v("factors", factors, {"The factors on the peak, numbers of at least 0; one more than boundaries."});
}

double WarmupPiecewise::factor_at(std::size_t index) const {
  const std::string& text = factors.at(index);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || !std::isfinite(value))
    throw hal::Error("WarmupPiecewise.factors", "a factor must be a number of at least 0", "'" + text + "'");
  return value;
}

double WarmupPiecewise::after(std::int64_t step) const {
  return factor_at(static_cast<std::size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), step) -
                                            boundaries.begin()));
}

void WarmupPiecewise::check() const {
  WarmupThen::check();
  require(factors.size() == boundaries.size() + 1, "factors", "must be one more than boundaries",
          static_cast<double>(factors.size()));
  require(std::is_sorted(boundaries.begin(), boundaries.end(), std::less_equal<>{}) || boundaries.size() < 2,
          "boundaries", "must be in rising order", static_cast<double>(boundaries.size()));
  for (std::size_t i = 0; i < factors.size(); ++i) factor_at(i);
}

void add_schedules_classes(layers::ClassTable& classes) {
  classes.add<ConstantSchedule::Config>();
  classes.add<WarmupCosine::Config>();
  classes.add<WarmupConstant>();
  classes.add<WarmupPolynomial>();
  classes.add<WarmupInverseSqrt>();
  classes.add<WarmupStableDecay>();
  classes.add<WarmupPiecewise>();
}

}  // namespace meshloom::trainer
