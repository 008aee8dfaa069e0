#include "layers/attention/padding.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/top_k/top_k.h"
#include "layers/attention/mask.h"

namespace meshloom::layers {

Tensor token_mask(Context& ctx, std::int64_t rows) {
  const Segments* segments = ctx.find<Segments>();
  if (!segments) return {};
  if (segments->ids.type().elements() != rows)
    throw Error(ctx.path(),
                "has a row for each of " + std::to_string(segments->ids.type().elements()) + " tokens",
                std::to_string(rows));
  // Column 0 is the only one there is: of the other ids take gives 0.
  const Tensor ones = kernels::constant(ctx.builder(), 1, {rows, 1});
  const Tensor padding = kernels::gather(ones, kernels::reshape(segments->ids, {rows, 1}));
  return kernels::elementwise({kernels::reshape(padding, {rows})}, "sub(1,x0)");
}

}  // namespace meshloom::layers
