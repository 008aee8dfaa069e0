#include "trainer/learner/adamw_8bit.h"

#include "kernels/adamw_8bit/adamw_8bit.h"

namespace meshloom::trainer {

void AdamW8bit::Config::fields(layers::FieldVisitor& v) {
  AdamW::Config::fields(v);
  v("min_8bit_size", min_8bit_size,
    {"Parameters of fewer elements keep moments of f32, such as norms and biases.", layers::at_least(0)});
}

std::vector<Slot> AdamW8bit::Config::slots(const layers::ParameterInfo& info) const {
  if (!quantized(info)) return AdamW::Config::slots(info);
  const kernels::TensorType type = kernels::moment_type(info.type);
  return {{"m", type, {"", ""}}, {"v", type, {"", ""}}};
}

std::vector<kernels::Tensor> AdamW8bit::Config::update(const Update& u) const {
  if (!quantized(u.info)) return AdamW::Config::update(u);
  const kernels::AdamWResult next =
      kernels::adamw_8bit(u.parameter, u.gradient, u.slots.at(0), u.slots.at(1), u.control.all,
                          {beta1, beta2, eps, u.info.decay * weight_decay});
  return {next.parameter, next.m, next.v};
}

void AdamW8bit::Config::check() const {
  AdamW::Config::check();
  require(min_8bit_size >= 0, "min_8bit_size", "must be at least 0", static_cast<double>(min_8bit_size));
}

void add_adamw_8bit_classes(layers::ClassTable& classes) { classes.add<AdamW8bit::Config>(); }

}  // namespace meshloom::trainer
