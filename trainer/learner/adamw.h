// AdamW (Loshchilov and Hutter, 2019) with clipping by global norm. Parameters with ParameterInfo.decay
// decay.
#pragma once

#include "trainer/learner/learner.h"
#include "trainer/learner/schedule.h"

namespace meshloom::trainer {

struct AdamW : Learner {
  struct Config : layers::ConfigOf<Config, Learner::Config> {
    static constexpr std::string_view kName = "AdamW";
    layers::Required<double> peak_learning_rate;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1.0;  // 0 = never
    layers::Child<Schedule::Config> schedule = ConstantSchedule::Config{};

    void fields(layers::FieldVisitor& v) override;
    double learning_rate(std::int64_t step) const override;
    double max_norm() const override { return clip_norm; }
    std::vector<std::string> slots() const override { return {"m", "v"}; }
    std::vector<kernels::Tensor> update(const layers::ParameterInfo& info, kernels::Tensor parameter,
                                        kernels::Tensor gradient, const std::vector<kernels::Tensor>& slots,
                                        kernels::Tensor control) const override;
    void check() const override;
  };
};

}  // namespace meshloom::trainer
