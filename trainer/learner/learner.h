// How parameters follow their gradients. A learner is a config: what it holds on the device is declared by
// slots(), what it does each step is written into the program by update(). What all of them share is here:
// the rate and its schedule, clipping by global norm, and which parameters learn, and how much.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/program/builder.h"
#include "layers/config/config.h"
#include "layers/models/trace.h"
#include "trainer/learner/ema.h"
#include "trainer/learner/parameter_group.h"
#include "trainer/learner/schedule.h"

namespace meshloom::trainer {

// The numbers of one step, (1) f32 each, and the four of them as the kernels take them.
struct Control {
  kernels::Tensor rate;   // the learning rate, this parameter's factor included
  kernels::Tensor scale;  // of the gradient
  kernels::Tensor apply;  // 0 = everything stays as it is, whatever the gradient holds; else 1
  kernels::Tensor step;   // the first update's is 1
  kernels::Tensor all;    // (4): rate, scale, apply, step; see kernels/adamw
};

// A value kept per parameter, zero at first.
struct Slot {
  std::string name;  // "m"
  kernels::TensorType type;
  std::vector<std::string> axes;
};

struct Update {
  const layers::ParameterInfo& info;
  kernels::Tensor parameter, gradient;
  std::vector<kernels::Tensor> slots;  // as slots() has them
  Control control;
};

struct Learner {
  struct Config : layers::Config {
    static constexpr std::string_view kAbout = "How parameters follow their gradients.";
    layers::Required<double> peak_learning_rate;
    double clip_norm = 1.0;  // global norm above which gradients are scaled down; 0 = never
    layers::Child<Schedule::Config> schedule = ConstantSchedule::Config{};
    std::string train =
        "all";  // or "adapters": only the parameters that adapters add (layers/adapters/adapter.h)
    layers::Child<Ema> ema;  // averages kept of the parameters that learn; none = none
    std::vector<layers::Child<ParameterGroup>> rules;  // in order; of two that set the same, the later counts

    // Calls v for the fields above. A class with fields of its own calls this first.
    void fields(layers::FieldVisitor& v) override;
    // For the update that makes step `step` (the first makes step 1).
    double learning_rate(std::int64_t step) const;
    // The parameters with `train` and the rules applied. Throws Error for a rule that matches none, and when
    // nothing is left to learn.
    std::vector<layers::ParameterInfo> treat(std::vector<layers::ParameterInfo> parameters) const;

    virtual std::vector<Slot> slots(const layers::ParameterInfo& info) const = 0;
    // Writes the update of one parameter; gives the new parameter and the new slots, in order.
    virtual std::vector<kernels::Tensor> update(const Update& update) const = 0;
    // Throws Error on values that make no sense. A class with fields of its own calls this first.
    virtual void check() const;

   protected:
    // Throws Error(CLASS.field, rule, found) unless good.
    void require(bool good, const char* field, const char* rule, double found) const;
    void require_fraction(const char* field, double value) const;  // in [0, 1)
  };
};

// A slot like the parameter.
Slot slot_like(const layers::ParameterInfo& info, const std::string& name);

// Every class of this folder.
void add_learner_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
