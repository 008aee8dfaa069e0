// Masks that are written down.
#pragma once

#include <string>

#include "layers/attention/mask.h"

namespace meshloom::layers {

// Key k is visible to query q where the expression `visible` is not 0, and `base` shows it too:
//
//   MaskFunction{visible="(q - k) % 4 == 0" base=Causal{}}                              dilated
//   MaskFunction{visible="q // 64 == k // 64" base=Full{}}                              blocks
//   MaskFunction{visible="k < 8 or q < 8 or abs(q - k) <= 64" base=Full{}}              global tokens and a window
//   MaskFunction{visible="k < 128 or k <= q" base=Full{}}                               a prefix
//
// q and k count tokens from 0, in each document by itself where rows hold several (Positions), and documents
// stay apart as under any mask. The language is that of parse_expression (kernels/elementwise/expression.h),
// computed as mask_bits says. The base is always said: a model that must not see what it is to say needs Causal, or
// an expression that says it. In memory are S T / 8 bytes, of each row of the batch where there are Positions,
// once for all layers with the same expression.
struct MaskFunction : ConfigOf<MaskFunction, Mask> {
  static constexpr std::string_view kName = "MaskFunction";
  static constexpr std::string_view kAbout =
      "What an expression of the positions q and k says, within another mask.";
  Required<std::string> visible;
  Child<Mask> base;

  void fields(FieldVisitor& v) override {
    v("attention_bitmask", visible,
      {"An expression of the positions q and k, counted from 0 in each document: not 0 where k is visible to "
       "q."});
    v("base", base,
      {"The mask that must show a position too: Causal{} hides what comes after a token, Full{} nothing."});
  }
  // Throws Error on an expression that cannot be read, naming the place in it.
  void check(const std::string& path) const override;
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

}  // namespace meshloom::layers
