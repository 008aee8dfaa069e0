// The numbers of one AdamW step, computed in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

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

// Records the kernel of this name, or with a copy of the parameter the one with "_with_copy" behind it. Bindings: the inputs, the
// outputs. The dtype of a copy follows the constants.
inline void record_adamw(const kernels::EncodeArgs& args, const std::string& kernel, std::int64_t items) {
  std::vector<hal::Binding> bindings;
  for (const hal::Binding& binding : args.inputs) bindings.push_back(reads(binding));
  for (const hal::Binding& binding : args.outputs) bindings.push_back(writes(binding));
  const bool has_copy = args.call.attrs.has("dtype");
  Constants constants = adamw_constants(args.call.inputs[0].elements(), args.call.attrs);
  if (has_copy) constants.dtype(args.call.outputs[3].dtype);
  record_dispatch(args, has_copy ? kernel + "_with_copy" : kernel, grid(items, 1, 1), bindings,
                  constants.words());
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
