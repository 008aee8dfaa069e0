#include "layers/core/dropout.h"

#include "kernels/dropout/dropout.h"
#include "layers/core/module.h"

namespace meshloom::layers {
namespace {

// With `whole_rows`, the elements of one row of the batch are kept or dropped together.
Tensor drop(Context& caller, Tensor x, double rate, const std::string& name, bool whole_rows) {
  if (!caller.training() || rate == 0) return x;
  Context ctx = caller.child(name);
  const std::int64_t count = x.type().elements();
  const Tokens* tokens = ctx.find<Tokens>();
  // A tensor that is not laid out by rows of the batch, such as an expert's tokens, counts as one row.
  const std::int64_t batch = tokens ? tokens->batch : x.dim(0), rows = count % batch == 0 ? batch : 1;
  const std::vector<std::string> axes = ctx.builder().program().value(x.id).axes;
  const Tensor y = kernels::dropout(
      x, ctx.rng_state(),
      {.rate = rate, .key = ctx.key().value, .rows = rows, .share = whole_rows ? count / rows : 1});
  ctx.builder().tag(y, ctx.tag());
  if (!axes.empty()) ctx.builder().axes(y, axes);
  return y;
}

}  // namespace

Tensor dropout(Context& ctx, Tensor x, double rate, const std::string& name) {
  return drop(ctx, x, rate, name, false);
}

double checked_dropout_rate(const std::string& path, double rate) {
  if (!(rate >= 0 && rate < 1))
    throw Error(display_path(path), "a dropout rate must be in [0, 1)", std::to_string(rate));
  return rate;
}

Tensor stochastic_depth(Context& ctx, Tensor x, double rate, const std::string& name) {
  return drop(ctx, x, rate, name, true);
}

}  // namespace meshloom::layers
