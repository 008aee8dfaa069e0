#include "layers/core/layer.h"

#include "kernels/layout/layout.h"

namespace meshloom::layers {

void Layer::check_features(const Tensor& x, std::int64_t size) const {
  if (x.type().rank() < 1 || x.dim(-1) != size)
    fail("must get " + std::to_string(size) + " features in the last dimension", to_string(x.type()));
}

Tensor Layer::map_rows(Context& ctx, Tensor x, const Dims& dims,
                       const std::function<Tensor(Tensor rows)>& product) const {
  check_features(x, dims.input);
  kernels::Shape shape = x.shape();
  if (shape.size() != 2) x = kernels::reshape(x, {x.type().elements() / dims.input, dims.input});
  const Tensor y = product(x);
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims.output_axis});
  if (shape.size() == 2) return y;
  shape.back() = dims.output;
  return kernels::reshape(y, shape);
}

}  // namespace meshloom::layers
