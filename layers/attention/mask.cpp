#include "layers/attention/mask.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/top_k/top_k.h"
#include "layers/core/module.h"

namespace meshloom::layers {

std::unique_ptr<const Mask> checked_mask(const Child<Mask>& mask, const std::string& path) {
  if (!mask)
    throw Error(display_path(path), "an attention must have a mask, Full if it attends to everything",
                "none");
  mask->check(path);
  return std::unique_ptr<const Mask>(static_cast<const Mask*>(mask->clone().release()));
}

void Causal::apply(const Context&, kernels::FlashAttentionOptions& options) const { options.causal = true; }

void Full::apply(const Context&, kernels::FlashAttentionOptions& options) const { options.causal = false; }

void SlidingWindow::apply(const Context& ctx, kernels::FlashAttentionOptions& options) const {
  if (window <= 0)
    throw Error(display_path(ctx.path()), "the window of a mask must be positive",
                std::to_string(window.get()));
  options.causal = true;
  options.left = window - 1;
}

void LeftRightWindow::apply(const Context& ctx, kernels::FlashAttentionOptions& options) const {
  for (const std::optional<std::int64_t>& side : {left, right})
    if (side && *side < 0)
      throw Error(display_path(ctx.path()), "a side of a window must not be negative", std::to_string(*side));
  options.causal = right == 0;
  options.left = left;
  if (!options.causal) options.right = right;
}

void PrefixLM::apply(const Context& ctx, kernels::FlashAttentionOptions& options) const {
  options.causal = true;
  options.prefix = ctx.get<Prefix>("Prefix").lengths;
}

Tensor token_mask(Context& ctx, std::int64_t rows) {
  const Segments* segments = ctx.find<Segments>();
  if (!segments) return {};
  if (segments->ids.type().elements() != rows)
    throw Error(ctx.path(),
                "must have a row for each of " + std::to_string(segments->ids.type().elements()) + " tokens",
                std::to_string(rows));
  // Only column 0 exists, so that gather gives 1 for segment 0 and 0 for every other segment.
  const Tensor ones = kernels::constant(ctx.builder(), 1, {rows, 1});
  const Tensor padding = kernels::gather(ones, kernels::reshape(segments->ids, {rows, 1}));
  return kernels::elementwise({kernels::reshape(padding, {rows})}, 1 - kernels::Expr::input(0));
}

void add_mask_classes(ClassTable& classes) {
  classes.add<Causal>();
  classes.add<Full>();
  classes.add<SlidingWindow>();
  classes.add<LeftRightWindow>();
  classes.add<PrefixLM>();
}

}  // namespace meshloom::layers
