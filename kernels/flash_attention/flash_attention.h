// Exact attention by tiles with a running softmax: no (S, T) buffer, forward or backward.
// Source: Dao et al., FlashAttention (2022) and FlashAttention-2 (2023).
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

struct FlashAttentionOptions {
  bool causal = true;
  double scale = 0;  // 0 = 1/sqrt(D)
};

// op "flash_attention"
// inputs: q (B, S, H, D), k and v (B, T, KV, D), all (o and the gradients too) of one float dtype; H a multiple of KV; query head h reads kv head h / (H / KV).
// attrs: causal (flag): key j is visible to query i iff j <= i + T - S (needs T >= S); scale (number).
// outputs: o (B, S, H, D); lse (B, H, S) f32: log of the sum over visible keys of exp(scale q.k).
// FLOPs: 4 B H D per visible (query, key) pair; causal counts only visible pairs.
//
// op "flash_attention_grad"
// inputs: q, k, v, o, lse, do. attrs: the same. outputs: dq, dk, dv. No cotangent flows through lse.
// FLOPs: 10 B H D per visible pair.
Tensor flash_attention(Tensor q, Tensor k, Tensor v, const FlashAttentionOptions& options = {});

struct AttentionDims {
  std::int64_t b, s, t, h, kv, d;
  bool causal;
  double scale;
  std::int64_t visible_pairs() const;  // of one head of one batch row
};
AttentionDims attention_dims(const CallView& call);

}  // namespace meshloom::kernels
