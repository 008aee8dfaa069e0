#include "trainer/learner/schedules.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace meshloom::trainer {

void WarmupCosine::Config::fields(layers::FieldVisitor& v) {
  v("warmup_steps", warmup_steps);
  v("total_steps", total_steps);
  v("final_fraction", final_fraction);
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
