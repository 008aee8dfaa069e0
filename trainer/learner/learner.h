// Learners: optimizers with all that belongs to them. A learner is a config: slots() declares the state that
// it keeps on the device, update() writes its update into the program. All learners share what is declared
// here: the learning rate and its schedule, clipping by the global norm, and the parameter groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/program/builder.h"
#include "layers/config/config.h"
#include "layers/models/trace.h"
#include "trainer/learner/ema.h"
#include "trainer/learner/schedule.h"

namespace meshloom::trainer {

// The scalars of one step, (1) f32 each, and all four as one tensor, which is what kernels read.
struct Control {
  kernels::Tensor rate;   // the learning rate times this parameter's factor
  kernels::Tensor scale;  // the factor on the gradient
  kernels::Tensor apply;  // 0 = the step is skipped and nothing changes, whatever the gradient holds; else 1
  kernels::Tensor step;   // the number of this update, from 1
  kernels::Tensor all;    // (4): rate, scale, apply, step; see kernels/adamw
};

// A state of the optimizer that every parameter has; it begins as zero.
struct Slot {
  std::string name;  // "m"
  kernels::TensorType type;
  std::vector<std::string> axes;
};

struct Update {
  const layers::ParameterInfo& info;
  kernels::Tensor parameter, gradient;
  std::vector<kernels::Tensor> slots;  // in the order of slots()
  Control control;
};

// Settings of some of the parameters, like the parameter groups of PyTorch's optimizers.
struct ParameterGroup : layers::ConfigOf<ParameterGroup> {
  static constexpr std::string_view kName = "ParameterGroup";
  static constexpr std::string_view kAbout = "Settings of some of the parameters.";
  std::string where = "**";  // pattern over parameter paths (layers/config/glob.h)
  std::string except;        // pattern over paths that are left out; "" = none
  bool freeze = false;       // no gradient, no optimizer state: the parameters keep their bits
  std::optional<double> weight_decay_factor;   // on the weight decay; none = unchanged
  std::optional<double> learning_rate_factor;  // on the learning rate; none = unchanged

  void fields(layers::FieldVisitor& v) override;
};

struct Learner {
  struct Config : layers::Config {
    static constexpr std::string_view kAbout = "An optimizer: how parameters follow their gradients.";
    layers::Required<double> peak_learning_rate;
    double clip_norm = 1.0;  // global norm above which gradients are scaled down; 0 = never
    layers::Child<Schedule::Config> schedule = ConstantSchedule::Config{};
    std::string train =
        "all";               // or "adapters": only what adapters add (layers/adapters/adapter.h) is trained
    layers::Child<Ema> ema;  // moving averages of the trained parameters; none = none are kept
    std::vector<layers::Child<ParameterGroup>>
        parameter_groups;  // where two set the same, the later one wins

    // Visits the fields above. A class with fields of its own calls this first.
    void fields(layers::FieldVisitor& v) override;
    // The learning rate of update `step`, counted from 1.
    double learning_rate(std::int64_t step) const;
    // The parameters after `train` and the parameter groups were applied. Throws Error for a group that
    // matches no parameter, and when no parameter is trainable.
    std::vector<layers::ParameterInfo> apply_parameter_groups(
        std::vector<layers::ParameterInfo> parameters) const;

    virtual std::vector<Slot> slots(const layers::ParameterInfo& info) const = 0;
    // Writes the update of one parameter. Returns the new parameter and then the new slots, in order.
    virtual std::vector<kernels::Tensor> update(const Update& update) const = 0;
    // Throws Error on invalid values. A class with fields of its own calls this first.
    virtual void check() const;

   protected:
    // Throws Error(CLASS.field, rule, found) unless good.
    void require(bool good, const char* field, const char* rule, double found) const;
    void require_fraction(const char* field, double value) const;  // in [0, 1)
  };
};

// A slot with the type and axes of the parameter.
Slot slot_like(const layers::ParameterInfo& info, const std::string& name);

// Whether an optimizer for matrices updates the parameter as a matrix, or as one matrix per expert.
bool holds_matrices(const layers::ParameterInfo& info);

// Adds every class of this folder.
void add_learner_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer
