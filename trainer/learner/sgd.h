// Gradient descent with momentum (Polyak, 1964; Nesterov's form as in Sutskever et al., 2013).
//   g' = g + decay p;  m' = momentum m + g';  p' = p - rate (nesterov ? g' + momentum m' : m')
#pragma once

#include "trainer/learner/learner.h"

namespace meshloom::trainer {

struct Sgd : Learner {
  struct Config : layers::ConfigOf<Config, Learner::Config> {
    static constexpr std::string_view kName = "Sgd";
    static constexpr std::string_view kAbout =
        "Gradient descent with momentum (Polyak, 1964) or Nesterov momentum (Sutskever et al., 2013).";
    double momentum = 0.9;  // 0 = none; no state is kept
    bool nesterov = false;
    double weight_decay = 0;

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
