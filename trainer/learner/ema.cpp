#include "trainer/learner/ema.h"

#include "hal/error.h"
#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

kernels::Tensor Ema::next(kernels::Tensor ema, kernels::Tensor parameter, kernels::Tensor apply,
                          kernels::Tensor step) const {
  const auto [average, p, applied, t] = kernels::inputs<4>();
  return kernels::elementwise({ema, parameter, apply, step},
                              select(applied, average + max(1 - decay, 1 / t) * (p - average), average));
}

void Ema::check() const {
  if (!(decay >= 0 && decay < 1))
    throw hal::Error("Ema.decay", "must be at least 0 and below 1", std::to_string(decay));
}

void add_ema_classes(layers::ClassTable& classes) { classes.add<Ema>(); }

}  // namespace meshloom::trainer
