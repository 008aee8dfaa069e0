// RMSprop (Tieleman and Hinton, 2012), as torch.optim.RMSprop computes it.
//   g' = g + decay p;  v' = alpha v + (1 - alpha) g'^2;  u = g' / (sqrt(v') + eps)
//   m' = momentum m + u;  p' = p - rate m'
#pragma once

#include "trainer/learner/learner.h"

namespace meshloom::trainer {

struct RMSprop : Learner {
  struct Config : layers::ConfigOf<Config, Learner::Config> {
    static constexpr std::string_view kName = "RMSprop";
    static constexpr std::string_view kAbout =
        "Gradients divided by the root of their running mean square (Tieleman and Hinton, 2012).";
    double alpha = 0.99;
    double eps = 1e-8;
    double momentum = 0;  // 0: no state is kept for it
    double weight_decay = 0;

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
