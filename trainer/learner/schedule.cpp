#include "trainer/learner/schedules.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace meshloom::trainer {

void add_end_fields(layers::FieldVisitor& v, layers::Required<std::int64_t>& total_steps,
                    double& final_fraction) {
  v("total_steps", total_steps,
    {"The step from which on the factor is final_fraction.", layers::at_least(1),
     layers::means("steps of the schedule")});
  v("final_fraction", final_fraction,
    {"The learning rate at the end, as a fraction of the peak.", layers::between(0, 1),
     layers::means("factor at the end")});
}

void WarmupCosine::Config::fields(layers::FieldVisitor& v) {
  v("warmup_steps", warmup_steps,
    {"Steps over which the learning rate rises linearly to its peak.", layers::at_least(0),
     layers::means("steps of the rise")});
  add_end_fields(v, total_steps, final_fraction);
}

double WarmupCosine::Config::factor(std::int64_t step) const {
  if (step < warmup_steps) return warmup(step, warmup_steps);
  const std::int64_t falling = std::max<std::int64_t>(1, total_steps.get() - warmup_steps);
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(falling));
  const double pi = std::acos(-1.0);
  return final_fraction + (1 - final_fraction) * 0.5 * (1 + std::cos(pi * done));
}

void WarmupCosine::Config::check() const {
  if (warmup_steps < 0)
    throw hal::Error("WarmupCosine.warmup_steps", "must be at least 0", std::to_string(warmup_steps));
  if (total_steps.get() < 1)
    throw hal::Error("WarmupCosine.total_steps", "must be at least 1", std::to_string(total_steps.get()));
  if (!(final_fraction >= 0 && final_fraction <= 1))
    throw hal::Error("WarmupCosine.final_fraction", "must be between 0 and 1",
                     std::to_string(final_fraction));
}

}  // namespace meshloom::trainer
