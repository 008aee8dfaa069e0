// The numbers of one AdamW step, computed in double.
#pragma once

#include <cmath>
#include <cstdint>

#include "backends/cpu/kernels/encode.h"

namespace meshloom::backends::cpu {

struct AdamWStep {
  float scale;               // of the gradient
  float b1, b1_rest;         // beta1, 1 - beta1
  float b2, b2_rest;         // beta2, 1 - beta2
  float m_unbias, v_unbias;  // 1 / (1 - beta^t)
  float eps, lr, decay;
};

// A block of eight-bit moments with its parameters; see kernels/adamw_8bit.
struct AdamW8bitTensors {
  const float *p, *g;
  const std::uint8_t *m, *v;
  float* p_out;
  std::uint8_t *m_out, *v_out;
};

// The constants of a dispatch over n elements. After n, adamw_step() reads them.
inline Constants adamw_constants(std::int64_t n, const kernels::Attrs& attrs) {
  return Constants()
      .integer(n)
      .real(attrs.number("beta1"))
      .real(attrs.number("beta2"))
      .real(attrs.number("eps"))
      .real(attrs.number("weight_decay"));
}

inline AdamWStep adamw_step(const float* control, ConstantReader& constants) {
  const double beta1 = constants.real(), beta2 = constants.real(), eps = constants.real(),
               decay = constants.real(), t = control[3];
  AdamWStep step;
  step.lr = control[0];
  step.scale = control[1];
  step.b1 = static_cast<float>(beta1);
  step.b1_rest = static_cast<float>(1 - beta1);
  step.b2 = static_cast<float>(beta2);
  step.b2_rest = static_cast<float>(1 - beta2);
  step.m_unbias = static_cast<float>(1 / (1 - std::pow(beta1, t)));
  step.v_unbias = static_cast<float>(1 / (1 - std::pow(beta2, t)));
  step.eps = static_cast<float>(eps);
  step.decay = static_cast<float>(decay);
  return step;
}

}  // namespace meshloom::backends::cpu
