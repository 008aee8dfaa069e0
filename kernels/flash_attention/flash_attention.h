// Exact attention by tiles with a running softmax: no (S, T) buffer, forward or backward.
// Source: Dao et al., FlashAttention (2022) and FlashAttention-2 (2023).
#pragma once

#include <optional>

#include "kernels/flash_attention/mask.h"
#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct FlashAttentionOptions {
  bool causal = true;
  double scale = 0;                         // 0 = 1/sqrt(D)
  std::optional<std::int64_t> left, right;  // keys to either side of a query; none = all. `causal`: no right
  double soft_cap = 0;                      // 0 = none
  double dropout = 0;                       // of probabilities; with `rng_state` and a key
  std::uint64_t key = 0;                    // its highest bit is left out
  // Optional inputs, see below.
  Tensor q_segments, k_segments, prefix, query_offset, sink, slopes, rng_state, bias, attention_bitmask;
};

// op "flash_attention"
// inputs: q (B, S, H, D), k (B, T, KV, D), v (B, T, KV, Dv), of one float dtype, which is that of o and of the
//   gradients; H a multiple of KV; query head h reads kv head h / (H / KV). Then, each where the flag of its name
//   is set, in this order:
//   segments: q_segments (B, S) i32 and k_segments (B, T) i32: a query sees the keys of its own segment only
//   prefix (B) i32: keys j < prefix[b] are visible whatever the window says (but not across segments)
//   query_offset (B) i32: the position of query 0 among the keys, in place of T - S
//   sink (H) f32: one more logit in every row's softmax, whose probability goes nowhere
//   slopes (H) f32: see below. A constant: it has no gradient
//   rng_state (3) i32: seed, step, first row, with the attributes dropout (number in (0, 1)) and key (integer): after the
//     softmax the probability of query i and key j becomes 0 where its word is below dropout 2^32, rounded down, and is
//     divided by 1 - dropout elsewhere (Srivastava et al., 2014; lse is of what was before). The word is number j mod 4 of
//     philox(counter = {(h S + i) ceil(T / 4) + j / 4, first row + b, step, seed}, key) of kernels/core/philox.h, so that
//     nothing is kept for the backward pass. H S ceil(T / 4) is below 2^32
//   bias (B or 1, H or 1, S, T) f32, finite: see below
//   attention_bitmask (B or 1, H or 1, S, ceil(T / 32)) i32: a query sees only keys whose bit is set: that of key j is bit j mod 32 of
//     word j / 32; bits beyond T mean nothing. `mask_bits` makes them of an expression
// attrs: scale (number); soft_cap (number > 0); the window: causal (flag), left, right (integers). Query i
//   stands at p = i + T - S (or i + query_offset[b]) and sees key j iff p - left <= j <= p + right; causal stands
//   for right = 0 and needs T >= S or query_offset. A negative side begins, or ends, on the other side of the query.
// The logit of a visible pair: x = scale q.k; x = soft_cap tanh(x / soft_cap); x -= slopes[h] |p - j|; x += bias[b, h, i, j].
// outputs: o (B, S, H, Dv); lse (B, H, S) f32: log of the sum over visible keys, and sink, of exp(logit).
//   A row that sees nothing: o = 0, lse = -infinity, and its gradients are 0.
// FLOPs: 2 B H (D + Dv) per (query, key) pair that the window shows for T - S.
//
// op "flash_attention_grad"
// inputs: q, k, v, o, lse, do, then the optional ones. attrs: the same. outputs: dq, dk, dv, and dsink where
//   `sink`. No cotangent flows through lse.
// FLOPs: B H (6 D + 4 Dv) per pair.
//
// op "flash_attention_bias_grad": the gradient of the bias, of its shape, f32: of the logits, summed over the rows and the
// heads that share a bias.
// inputs and attrs: those of flash_attention_grad, with a bias.
// FLOPs: B H (2 D + 2 Dv) per pair.
//
// Sources: sliding windows, Beltagy et al. (2020); prefix-LM, Raffel et al. (2020); soft caps, Gemma 2
// (2024); linear biases, Press et al., ALiBi (2022); sinks, Xiao et al. (2024).
struct AttentionOutputs {
  Tensor o, lse;
};
AttentionOutputs flash_attention_with_lse(Tensor q, Tensor k, Tensor v,
                                          const FlashAttentionOptions& options = {});
Tensor flash_attention(Tensor q, Tensor k, Tensor v, const FlashAttentionOptions& options = {});  // o

// What types and attributes of either op's call mean, decoded once for every variant.
struct AttentionDims {
  std::int64_t b, s, t, h, kv, d, dv;
  bool causal;
  double scale;
  std::int64_t left = kUnlimited, right = kUnlimited;  // right is 0 where causal
  double soft_cap = 0;                                 // 0 = none
  // Indices among the call's inputs, or -1.
  int q_segments = -1, k_segments = -1, prefix = -1, query_offset = -1, sink = -1, slopes = -1,
      rng_state = -1, bias = -1, attention_bitmask = -1;
  // Whether batch rows and heads have biases, and bits, of their own.
  bool bias_rows = false, bias_heads = false, bitmask_rows = false, bitmask_heads = false;
  double dropout = 0;  // where there is an rng_state, with its key
  std::uint32_t k0 = 0, k1 = 0;
  // A word below it drops; what stays is multiplied by kept().
  std::uint32_t threshold() const { return static_cast<std::uint32_t>(dropout * 0x1p32); }
  double kept() const { return 1 / (1 - dropout); }

  // Nothing but full or causal attention with values as wide as keys.
  bool plain() const;
  // "" where plain(), else what the call has beyond it: "a left window, segments".
  std::string extras() const;
  std::int64_t bits_words() const { return (t + 31) / 32; }  // of a query
  // Where the bias, and the bits, of batch row b and head h begin.
  std::int64_t bias_at(std::int64_t row, std::int64_t head) const {
    return shared_at(row, head, bias_rows, bias_heads) * s * t;
  }
  std::int64_t bitmask_at(std::int64_t row, std::int64_t head) const {
    return shared_at(row, head, bitmask_rows, bitmask_heads) * s * bits_words();
  }

  // The part that attributes fix; offset is T - S.
  AttentionMask mask() const { return {s, t, t - s, left, right}; }
  // Pairs of one head of one batch row that count as work.
  std::int64_t attended_pairs() const { return mask().window_pairs(); }

 private:
  std::int64_t shared_at(std::int64_t row, std::int64_t head, bool rows, bool heads) const {
    return (rows ? row : 0) * (heads ? h : 1) + (heads ? head : 0);
  }
};
AttentionDims attention_dims(const CallView& call);

}  // namespace meshloom::kernels
