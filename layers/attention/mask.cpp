#include "layers/attention/mask.h"

#include "layers/core/module.h"

namespace meshloom::layers {

std::unique_ptr<const Mask> checked_mask(const Child<Mask>& mask, const std::string& path) {
  if (!mask) throw Error(shown(path), "an attention has a mask (Full for none)", "none");
  mask->check(path);
  return std::unique_ptr<const Mask>(static_cast<const Mask*>(mask->clone().release()));
}

void Causal::apply(const Context&, kernels::FlashAttentionOptions& options) const { options.causal = true; }

void Full::apply(const Context&, kernels::FlashAttentionOptions& options) const { options.causal = false; }

void SlidingWindow::apply(const Context& ctx, kernels::FlashAttentionOptions& options) const {
  if (window <= 0)
    throw Error(shown(ctx.path()), "the window of a mask is positive", std::to_string(window.get()));
  options.causal = true;
  options.left = window - 1;
}

void LeftRightWindow::apply(const Context& ctx, kernels::FlashAttentionOptions& options) const {
  for (const std::optional<std::int64_t>& side : {left, right})
    if (side && *side < 0)
      throw Error(shown(ctx.path()), "a side of a window is not negative", std::to_string(*side));
  options.causal = right == 0;
  options.left = left;
  if (!options.causal) options.right = right;
}

void PrefixLM::apply(const Context& ctx, kernels::FlashAttentionOptions& options) const {
  options.causal = true;
  options.prefix = ctx.get<Prefix>("Prefix").lengths;
}

void add_mask_classes(ClassTable& classes) {
  classes.add<Causal>();
  classes.add<Full>();
  classes.add<SlidingWindow>();
  classes.add<LeftRightWindow>();
  classes.add<PrefixLM>();
}

}  // namespace meshloom::layers
