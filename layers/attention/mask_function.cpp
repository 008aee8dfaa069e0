#include "layers/attention/mask_function.h"

#include "kernels/elementwise/expression.h"
#include "kernels/mask_bits/mask_bits.h"
#include "layers/core/axes.h"
#include "layers/core/module.h"
#include "layers/position/position.h"

namespace meshloom::layers {
namespace {

// The expression with x0 and x1 in place of q and k.
std::string bits_expression(const std::string& visible) {
  return kernels::to_string(kernels::parse_expression(visible, {"q", "k"}));
}

}  // namespace

void MaskFunction::check(const std::string& path) const {
  if (!base)
    throw Error(display_path(path),
                "a mask function must have a base: Causal{} hides later positions, Full{} hides nothing",
                "none");
  base->check(path);
  try {
    const std::size_t roots = kernels::parse_expression(visible.get(), {"q", "k"}).roots.size();
    if (roots != 1)
      throw Error("expression '" + visible.get() + "'", "must be a single one", std::to_string(roots));
  } catch (const hal::Error& error) {
    throw Error(display_path(path), "the mask's " + error.where() + " " + error.rule(), error.found());
  }
}

void MaskFunction::apply(const Context& ctx, kernels::FlashAttentionOptions& options) const {
  base->apply(ctx, options);
  if (options.attention_bitmask)
    throw Error(
        display_path(ctx.path()),
        "only one mask of an attention may have an expression; two can be written as one, (...) and (...)",
        "a base that has one too");
  const std::string expression = bits_expression(visible);
  const Positions* positions = ctx.find<Positions>();
  const std::int64_t sequence = ctx.get<Tokens>("Tokens").sequence;
  options.attention_bitmask = ctx.shared(
      "mask " + expression +
          (positions ? " of value " + std::to_string(positions->ids.id) : " of " + std::to_string(sequence)),
      [&](kernels::Builder& builder) {
        const Tensor bits = positions ? kernels::mask_bits(expression, positions->ids, positions->ids)
                                      : kernels::mask_bits(builder, expression, sequence, sequence);
        return ctx.mark(bits, "attention.mask", {positions ? axis::kBatch : "", "", axis::kSeq, ""});
      });
}

void add_mask_function_classes(ClassTable& classes) { classes.add<MaskFunction>(); }

}  // namespace meshloom::layers
