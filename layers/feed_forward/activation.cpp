#include "layers/feed_forward/activation.h"

namespace meshloom::layers {

std::string Relu::expression(const std::string& x) const { return "max(" + x + ",0)"; }

std::string Silu::expression(const std::string& x) const { return "mul(" + x + ",sigmoid(" + x + "))"; }

std::string Gelu::expression(const std::string& x) const {
  return "mul(mul(0.5," + x + "),add(1,erf(mul(0.7071067811865476," + x + "))))";
}

std::string GeluTanh::expression(const std::string& x) const {
  const std::string cube = "mul(" + x + ",mul(" + x + "," + x + "))";
  const std::string inner = "mul(0.7978845608028654,add(" + x + ",mul(0.044715," + cube + ")))";
  return "mul(mul(0.5," + x + "),add(1,tanh(" + inner + ")))";
}

void add_activation_classes(ClassTable& classes) {
  classes.add<Relu>();
  classes.add<Silu>();
  classes.add<Gelu>();
  classes.add<GeluTanh>();
}

}  // namespace meshloom::layers
