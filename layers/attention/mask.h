// Which positions a position attends to. A mask is a config and a pure function at once.
//
// Any other mask is a class of this interface. What windows and prefixes do not say, `visible` does: any tensor of bits, as
// flash_attention takes them, computed in the program. MaskFunction makes one of text.
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
  static constexpr std::string_view kAbout = "Which positions a position attends to.";
  // Throws Error at `path`, the attention's, on fields that make no sense; when the model is built.
  virtual void check(const std::string& /*path*/) const {}
  // Says its part of an attention whose call has the context `ctx`.
  virtual void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const = 0;
};

// A copy of the mask that an attention's config holds. Throws Error at `path` where it has none, or fields that make no sense.
std::unique_ptr<const Mask> checked_mask(const Child<Mask>& mask, const std::string& path);

// Itself and what came before.
struct Causal : ConfigOf<Causal, Mask> {
  static constexpr std::string_view kName = "Causal";
  static constexpr std::string_view kAbout = "Itself and what came before.";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// Everything.
struct Full : ConfigOf<Full, Mask> {
  static constexpr std::string_view kName = "Full";
  static constexpr std::string_view kAbout = "Everything.";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// The last `window` positions, its own among them (Beltagy et al., 2020).
struct SlidingWindow : ConfigOf<SlidingWindow, Mask> {
  static constexpr std::string_view kName = "SlidingWindow";
  static constexpr std::string_view kAbout = "The last positions, its own among them (Beltagy et al., 2020).";
  Required<std::int64_t> window;

  void fields(FieldVisitor& v) override {
    v("window", window,
      {"How many positions a position sees, its own and those just before it.", at_least(1)});
  }
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// So many positions to either side, and its own; none = all of that side.
struct LeftRightWindow : ConfigOf<LeftRightWindow, Mask> {
  static constexpr std::string_view kName = "LeftRightWindow";
  static constexpr std::string_view kAbout = "So many positions to either side, and its own.";
  std::optional<std::int64_t> left, right;

  void fields(FieldVisitor& v) override {
    v("left", left, {"How many positions before its own a position sees; none: all.", at_least(0)});
    v("right", right, {"How many positions after its own a position sees; none: all.", at_least(0)});
  }
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// Causal, but the prefix of a sequence is seen by all of it (Raffel et al., 2020). Needs Prefix.
struct PrefixLM : ConfigOf<PrefixLM, Mask> {
  static constexpr std::string_view kName = "PrefixLM";
  static constexpr std::string_view kAbout =
      "Causal, but the prefix of a sequence is seen by all of it (Raffel et al., 2020).";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// Call information: how long the prefix of each sequence is.
struct Prefix {
  Tensor lengths;  // (B) i32
};

// Call information: sequences are packed documents, and no position sees another document's, whatever the
// mask.
struct Segments {
  Tensor ids;  // (B, S) i32: whose a token is; 0 = nobody's, padding
};

}  // namespace meshloom::layers
