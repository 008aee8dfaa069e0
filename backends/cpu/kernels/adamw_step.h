// The numbers of one AdamW step, computed in double.
#pragma once

namespace meshloom::backends::cpu {

struct AdamWStep {
  float scale;               // of the gradient
  float b1, b1_rest;         // beta1, 1 - beta1
  float b2, b2_rest;         // beta2, 1 - beta2
  float m_unbias, v_unbias;  // 1 / (1 - beta^t)
  float eps, lr, decay;
};

}  // namespace meshloom::backends::cpu
