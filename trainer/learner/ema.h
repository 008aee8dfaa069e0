// A moving average of the parameters (Polyak and Juditsky, 1992), kept beside them as the slot "ema".
//   e' = e + max(1 - decay, 1 / step) (p' - e)
// is the plain mean of the first 1 / (1 - decay) steps and forgets exponentially from then on, so that it
// needs no correction for its start.
#pragma once

#include "kernels/program/builder.h"
#include "layers/config/config.h"

namespace meshloom::trainer {

struct Ema : layers::ConfigOf<Ema> {
  static constexpr std::string_view kName = "Ema";
  static constexpr std::string_view kAbout =
      "A moving average of the parameters, kept beside them (Polyak and Juditsky, 1992).";
  double decay = 0.999;

  void fields(layers::FieldVisitor& v) override {
    v("decay", decay,
      {"Decay per step of the average, once 1 / (1 - decay) steps are done; before it is the plain mean.",
       layers::below_one()});
  }
  // `parameter` is the new one; where `apply` is 0 the average stays. Both (1).
  kernels::Tensor next(kernels::Tensor ema, kernels::Tensor parameter, kernels::Tensor apply,
                       kernels::Tensor step) const;
  void check() const;
};

}  // namespace meshloom::trainer
