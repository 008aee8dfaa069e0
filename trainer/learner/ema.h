// A moving average of the parameters (Polyak and Juditsky, 1992), which is kept beside them as the slot
// "ema".
//   e' = e + max(1 - decay, 1 / step) (p' - e)
// This is the plain mean of the first 1 / (1 - decay) steps and an exponential average from then on, so its
// start needs no correction.
#pragma once

#include "kernels/program/builder.h"
#include "layers/config/config.h"

namespace meshloom::trainer {

struct Ema : layers::ConfigOf<Ema> {
  static constexpr std::string_view kName = "Ema";
  static constexpr std::string_view kAbout =
      "A moving average of the parameters (Polyak and Juditsky, 1992).";
  double decay = 0.999;

  void fields(layers::FieldVisitor& v) override {
    v("decay", decay,
      {"Decay per step of the average after 1 / (1 - decay) steps; until then it is the plain mean.",
       layers::below_one()});
  }
  // The next average. `parameter` is the updated one. When `apply` is 0 the average does not change. `apply`
  // and `step` are (1).
  kernels::Tensor next(kernels::Tensor ema, kernels::Tensor parameter, kernels::Tensor apply,
                       kernels::Tensor step) const;
  void check() const;
};

}  // namespace meshloom::trainer
