#include "layers/loss/loss.h"

#include "kernels/cross_entropy/cross_entropy.h"

namespace meshloom::layers {

std::unique_ptr<Module> CrossEntropy::Config::build(const Place& place) const {
  return std::make_unique<CrossEntropy>(*this, place);
}

TokenLoss::Result CrossEntropy::forward(Context&, Tensor logits, Tensor targets) {
  const kernels::CrossEntropy result = kernels::cross_entropy(logits, targets);
  return {result.loss, result.valid};
}

void add_loss_classes(ClassTable& classes) { classes.add<CrossEntropy::Config>(); }

}  // namespace meshloom::layers
