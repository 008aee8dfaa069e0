// Which positions a position attends to. A mask is a config and a pure function at once.
#pragma once

#include <cstdint>

#include "kernels/flash_attention/flash_attention.h"
#include "layers/config/config.h"
#include "layers/context.h"

namespace meshloom::layers {

struct Mask : Config {
  // Says its part of an attention whose call has the context `ctx`.
  virtual void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const = 0;
};

// Itself and what came before.
struct Causal : ConfigOf<Causal, Mask> {
  static constexpr std::string_view kName = "Causal";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// Everything.
struct Full : ConfigOf<Full, Mask> {
  static constexpr std::string_view kName = "Full";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// The last `window` positions, its own among them (Beltagy et al., 2020).
struct SlidingWindow : ConfigOf<SlidingWindow, Mask> {
  static constexpr std::string_view kName = "SlidingWindow";
  Required<std::int64_t> window;

  void fields(FieldVisitor& v) override { v("window", window); }
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// So many positions to either side, and its own; none = all of that side.
struct LeftRightWindow : ConfigOf<LeftRightWindow, Mask> {
  static constexpr std::string_view kName = "LeftRightWindow";
  std::optional<std::int64_t> left, right;

  void fields(FieldVisitor& v) override {
    v("left", left);
    v("right", right);
  }
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override;
};

// Causal, but the prefix of a sequence is seen by all of it (Raffel et al., 2020). Needs Prefix.
struct PrefixLM : ConfigOf<PrefixLM, Mask> {
  static constexpr std::string_view kName = "PrefixLM";
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
