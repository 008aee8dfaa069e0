#include "layers/moe/score.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/softmax/softmax.h"

namespace meshloom::layers {

using kernels::Tensor;

Tensor SoftmaxScore::scores(Tensor logits) const { return kernels::softmax(logits).y; }
Tensor SoftmaxScore::log_scores(Tensor logits) const { return logits; }

Tensor SigmoidScore::scores(Tensor logits) const { return kernels::elementwise({logits}, "sigmoid(x0)"); }
Tensor SigmoidScore::log_scores(Tensor logits) const {
  return kernels::elementwise({logits}, "sub(min(x0,0),log(add(1,exp(neg(abs(x0))))))");
}

void add_score_classes(ClassTable& classes) {
  classes.add<SoftmaxScore>();
  classes.add<SigmoidScore>();
}

}  // namespace meshloom::layers
