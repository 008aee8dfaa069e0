// Lion (Chen et al., 2023): steps by the sign of a moving average of gradients.
//   u = sign(beta1 m + (1 - beta1) g);  p' = p - rate (u + decay p);  m' = beta2 m + (1 - beta2) g
#pragma once

#include "trainer/learner/learner.h"

namespace meshloom::trainer {

struct Lion : Learner {
  struct Config : layers::ConfigOf<Config, Learner::Config> {
    static constexpr std::string_view kName = "Lion";
    static constexpr std::string_view kAbout =
        "Steps by the sign of a moving average of gradients (Chen et al., 2023).";
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0.1;

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
