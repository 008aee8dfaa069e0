#include "trainer/learner/ema.h"

#include <fmt/format.h>

#include "hal/error.h"
#include "kernels/elementwise/elementwise.h"

namespace meshloom::trainer {

kernels::Tensor Ema::next(kernels::Tensor ema, kernels::Tensor parameter, kernels::Tensor apply,
                          kernels::Tensor step) const {
  return kernels::elementwise({ema, parameter, apply, step},
                              fmt::format("select(x2,add(x0,mul(max({},div(1,x3)),sub(x1,x0))),x0)", 1 - decay));
}

void Ema::check() const {
  if (!(decay >= 0 && decay < 1))
    throw hal::Error("Ema.decay", "must be at least 0 and below 1", std::to_string(decay));
}

}  // namespace meshloom::trainer
