#include "layers/feed_forward/activation.h"

namespace meshloom::layers {

using kernels::Expr;

Expr Relu::apply(const Expr& x) const { return kernels::relu(x); }
Expr Silu::apply(const Expr& x) const { return kernels::silu(x); }
Expr Gelu::apply(const Expr& x) const { return kernels::gelu(x); }
Expr GeluTanh::apply(const Expr& x) const { return kernels::gelu_tanh(x); }

void add_activation_classes(ClassTable& classes) {
  classes.add<Relu>();
  classes.add<Silu>();
  classes.add<Gelu>();
  classes.add<GeluTanh>();
}

}  // namespace meshloom::layers
