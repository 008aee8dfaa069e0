#include "layers/core/layer.h"

namespace meshloom::layers {

void Layer::check_features(const Tensor& x, std::int64_t size) const {
  if (x.type().rank() < 1 || x.dim(-1) != size)
    fail("must get " + std::to_string(size) + " features in the last dimension", to_string(x.type()));
}

}  // namespace meshloom::layers
