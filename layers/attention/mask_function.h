// Attention masks that are written as an expression.
#pragma once

#include <string>

#include "layers/attention/mask.h"

namespace meshloom::layers {

// A query at position q attends to a key at position k where the expression `visible` is not 0 and the mask `base`
// allows it:
//
//   MaskFunction{visible="(q - k) % 4 == 0" base=Causal{}}                              dilated
//   MaskFunction{visible="q // 64 == k // 64" base=Full{}}                              blocks
//   MaskFunction{visible="k < 8 or q < 8 or abs(q - k) <= 64" base=Full{}}              global tokens and a window
//   MaskFunction{visible="k < 128 or k <= q" base=Full{}}                               a prefix
//
// q and k are counted from 0; in rows with several documents (Positions), from 0 in each document. The language of the
// expression is that of parse_expression (kernels/elementwise/expression.h), evaluated as mask_bits says. `base` has no
// default: a model that must not see the tokens that it predicts needs Causal, or an expression with that effect. The
// bits take S T / 8 bytes, per row of the batch if there are Positions, and all layers with the same expression share
// them.
struct MaskFunction : ConfigOf<MaskFunction, Mask> {
  static constexpr std::string_view kName = "MaskFunction";
  static constexpr std::string_view kAbout =
      "A mask that an expression of the positions q and k defines, within another mask.";
  Required<std::string> visible;
  Child<Mask> base;

  void fields(FieldVisitor& v) override {
    v("visible", visible,
      {"An expression of the positions q and k, counted from 0 in each document: not 0 where q attends to "
       "k."});
    v("base", base,
      {"The mask that must allow it too: Causal{} hides later positions, Full{} hides nothing."});
  }
  // Throws Error if the expression cannot be parsed, naming the place in it.
  void check(const std::string& path) const override;
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

}  // namespace meshloom::layers
