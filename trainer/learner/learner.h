// How parameters follow their gradients. A learner is a config: what it holds on the device is declared by
// slots(), what it does each step is written into the program by update().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/program/builder.h"
#include "layers/config/config.h"
#include "layers/trace.h"

namespace meshloom::trainer {

struct Learner {
  struct Config : layers::Config {
    // For the update that makes step `step` (the first makes step 1).
    virtual double learning_rate(std::int64_t step) const = 0;
    // Global norm above which gradients are scaled down; 0 = never.
    virtual double max_norm() const = 0;
    // Values kept per parameter, each like the parameter and zero at first: "m", "v".
    virtual std::vector<std::string> slots() const = 0;
    // Writes the update of one parameter. `control` (4) f32 = [lr, gradient scale, apply, step], see
    // kernels/adamw. Gives the new parameter and the new slots, in order. Where apply = 0 all are copies.
    virtual std::vector<kernels::Tensor> update(const layers::ParameterInfo& info, kernels::Tensor parameter,
                                                kernels::Tensor gradient,
                                                const std::vector<kernels::Tensor>& slots,
                                                kernels::Tensor control) const = 0;
    // Throws Error on values that make no sense.
    virtual void check() const = 0;
  };
};

// AdamW, Constant, WarmupCosine, ...: every class of this folder.
void add_learner_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
