// Functions that compose the configs of well-known architectures.
#pragma once

#include <cstdint>
#include <optional>

#include "layers/models/causal_lm.h"
#include "layers/models/encoder_decoder.h"

namespace meshloom::layers {

// Llama (Touvron et al., 2023) and its relatives: RMSNorm, rotary positions on half pairs, SwiGLU, no biases.
struct LlamaShape {
  std::int64_t vocab, dim, layers, heads, kv_heads, ffn;
  bool tied = false;  // whether the head shares the embedding's weight
  double theta = 10000;
  double eps = 1e-5;
  std::optional<std::int64_t> head_dim = std::nullopt;  // none = dim / heads
};
CausalLM::Config llama_config(const LlamaShape& shape);
// An encoder and a decoder with such layers, shape.layers each, and one embedding for both.
EncoderDecoder::Config encoder_decoder_config(const LlamaShape& shape);

// GPT-2 (Radford et al., 2019): LayerNorm, learned positions, GELU by tanh, biases everywhere, tied head. The
// defaults are the 124M model.
struct Gpt2Shape {
  std::int64_t vocab = 50257, dim = 768, layers = 12, heads = 12, context = 1024;
};
CausalLM::Config gpt2_config(const Gpt2Shape& shape);

}  // namespace meshloom::layers
