// AdamW (Loshchilov and Hutter, 2019). Matrices decay, unless a parameter group says otherwise.
#pragma once

#include "trainer/learner/learner.h"

namespace meshloom::trainer {

struct AdamW : Learner {
  struct Config : layers::ConfigOf<Config, Learner::Config> {
    static constexpr std::string_view kName = "AdamW";
    static constexpr std::string_view kAbout =
        "Adam with decoupled weight decay, times the learning rate (Loshchilov and Hutter, 2019).";
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;

    void fields(layers::FieldVisitor& v) override;
    std::vector<Slot> slots(const layers::ParameterInfo& info) const override;
    std::vector<kernels::Tensor> update(const Update& update) const override;
    void check() const override;

   protected:
    // The description of weight_decay, whose meaning differs between subclasses.
    virtual layers::About decay_about() const;
  };
};

}  // namespace meshloom::trainer
