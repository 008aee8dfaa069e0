// Attention masks: which positions a position may attend to. A mask is both a config and a pure function.
//
// Another mask is another class with this interface. What windows and prefixes cannot express, a tensor of bits can,
// which the program computes and flash_attention takes as the option `attention_bitmask`. MaskFunction makes such bits
// from an expression.
//
//   struct EveryOther : ConfigOf<EveryOther, Mask> {
//     static constexpr std::string_view kName = "EveryOther";
//     void fields(FieldVisitor&) override {}
//     void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override {
//       const std::int64_t sequence = ctx.get<Tokens>("Tokens").sequence;
//       options.causal = true;
//       options.attention_bitmask = kernels::mask_bits(ctx.builder(), "(x0 - x1) % 2 == 0", sequence, sequence);
//     }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/flash_attention/flash_attention.h"
#include "layers/config/config.h"
#include "layers/core/context.h"

namespace meshloom::layers {

struct Mask : Config {
  static constexpr std::string_view kAbout = "Which positions a position may attend to.";
  // Throws Error at `path`, that of the attention, if a field has a wrong value. Called when the model is built.
  virtual void check(const std::string& /*path*/) const {}
  // Sets the options of an attention whose call has the context `ctx`.
  virtual void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const = 0;
};

// A copy of the mask of an attention's config. Throws Error at `path` if there is none, or if its check() does.
std::unique_ptr<const Mask> checked_mask(const Child<Mask>& mask, const std::string& path);

// A position attends to itself and to earlier positions.
struct Causal : ConfigOf<Causal, Mask> {
  static constexpr std::string_view kName = "Causal";
  static constexpr std::string_view kAbout = "A position attends to itself and to earlier positions.";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// A position attends to every position.
struct Full : ConfigOf<Full, Mask> {
  static constexpr std::string_view kName = "Full";
  static constexpr std::string_view kAbout = "A position attends to every position.";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// A position attends to the last `window` positions up to and including itself (Beltagy et al., 2020).
struct SlidingWindow : ConfigOf<SlidingWindow, Mask> {
  static constexpr std::string_view kName = "SlidingWindow";
  static constexpr std::string_view kAbout =
      "A position attends to itself and to a number of positions just before it (Beltagy et al., 2020).";
  Required<std::int64_t> window;

  void fields(FieldVisitor& v) override {
    v("window", window,
      {"The number of positions in the window, the position itself included.", at_least(1)});
  }
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// A position attends to itself, to `left` positions before it and to `right` positions after it; none = all of that
// side.
struct LeftRightWindow : ConfigOf<LeftRightWindow, Mask> {
  static constexpr std::string_view kName = "LeftRightWindow";
  static constexpr std::string_view kAbout =
      "A position attends to itself and to a number of positions on either side.";
  std::optional<std::int64_t> left, right;

  void fields(FieldVisitor& v) override {
    v("left", left,
      {"The number of positions before a position that it attends to; none: all.", at_least(0)});
    v("right", right,
      {"The number of positions after a position that it attends to; none: all.", at_least(0)});
  }
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// Causal, except that every position attends to the whole prefix of its sequence (Raffel et al., 2020). The context must
// have Prefix.
struct PrefixLM : ConfigOf<PrefixLM, Mask> {
  static constexpr std::string_view kName = "PrefixLM";
  static constexpr std::string_view kAbout =
      "Causal, except that every position attends to the whole prefix (Raffel et al., 2020).";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// Call information: the length of the prefix of each sequence.
struct Prefix {
  Tensor lengths;  // (B) i32
};

// Call information: rows are packed with several documents, and no position attends to another document, whatever the
// mask.
struct Segments {
  Tensor ids;  // (B, S) i32: the document of a token, from 1; 0 = padding
};

// For activations (rows, features) with one row per token: (rows), 1 for a token and 0 for padding (segment 0). An empty
// tensor if the context has no Segments. Throws Error unless there are as many rows as tokens.
Tensor token_mask(Context& ctx, std::int64_t rows);

}  // namespace meshloom::layers
