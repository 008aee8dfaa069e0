#include "layers/models/models.h"

#include "layers/attention/cross_attention.h"

namespace meshloom::layers {
namespace {

Stack::Config stack_of(std::int64_t layers, const TransformerLayer::Config& layer) {
  Stack::Config stack;
  stack.num_layers = layers;
  stack.layer = layer;
  return stack;
}

CausalLM::Config assemble(std::int64_t vocab, std::int64_t dim, std::int64_t layers, const Norm::Config& norm,
                          const TransformerLayer::Config& layer) {
  Decoder::Config decoder;
  decoder.dim = dim;
  decoder.stack = stack_of(layers, layer);
  decoder.norm.reset(norm.clone());
  CausalLM::Config model;
  model.vocab_size = vocab;
  model.decoder = decoder;
  return model;
}

// A projection into the residual stream.
Linear::Config residual_linear(bool bias) {
  Linear::Config linear;
  linear.bias = bias;
  linear.init = DepthScaledNormal{};
  return linear;
}

// The fields that are the same for every attention of a Llama.
template <typename Config>
Config llama_attention(const LlamaShape& shape) {
  Config attention;
  attention.num_heads = shape.heads;
  attention.num_kv_heads = shape.kv_heads;
  attention.head_dim = shape.head_dim;
  attention.o_proj = residual_linear(false);
  return attention;
}

TransformerLayer::Config llama_layer(const LlamaShape& shape, const RMSNorm::Config& norm,
                                     const Child<Mask>& mask = Causal{}) {
  RotaryPosition::Config positions;
  positions.theta = shape.theta;
  auto attention = llama_attention<Attention::Config>(shape);
  attention.mask = mask;
  attention.positions = positions;
  FeedForward::Config feed_forward;
  feed_forward.hidden_dim = shape.ffn;
  feed_forward.down_proj = residual_linear(false);
  TransformerLayer::Config layer;
  layer.attention_norm = norm;
  layer.attention = attention;
  layer.feed_forward_norm = norm;
  layer.feed_forward = feed_forward;
  return layer;
}

}  // namespace

CausalLM::Config llama_config(const LlamaShape& shape) {
  RMSNorm::Config norm;
  norm.eps = shape.eps;
  CausalLM::Config model = assemble(shape.vocab, shape.dim, shape.layers, norm, llama_layer(shape, norm));
  if (!shape.tied) model.decoder->head = Linear::Config{};
  return model;
}

EncoderDecoder::Config encoder_decoder_config(const LlamaShape& shape) {
  const CausalLM::Config plain = llama_config(shape);
  RMSNorm::Config norm;
  norm.eps = shape.eps;
  TransformerLayer::Config layer = llama_layer(shape, norm);
  EncoderDecoder::Config model;
  model.vocab_size = shape.vocab;
  model.decoder = plain.decoder;
  model.loss = plain.loss;
  model.decoder->embedding = {};
  layer.cross_attention = llama_attention<CrossAttention::Config>(shape);
  model.decoder->stack = stack_of(shape.layers, layer);
  model.encoder->dim = shape.dim;
  model.encoder->stack = stack_of(shape.layers, llama_layer(shape, norm, Full{}));
  model.encoder->norm = norm;
  return model;
}

CausalLM::Config gpt2_config(const Gpt2Shape& shape) {
  const LayerNorm::Config norm;
  Linear::Config linear;
  linear.bias = true;
  Attention::Config attention;
  attention.num_heads = shape.heads;
  attention.q_proj = linear;
  attention.k_proj = linear;
  attention.v_proj = linear;
  attention.o_proj = residual_linear(true);
  FeedForward::Config feed_forward;
  feed_forward.hidden_dim = 4 * shape.dim;
  feed_forward.activation = GeluTanh{};
  feed_forward.gate_proj = {};
  feed_forward.up_proj = linear;
  feed_forward.down_proj = residual_linear(true);
  TransformerLayer::Config layer;
  layer.attention_norm = norm;
  layer.attention = attention;
  layer.feed_forward_norm = norm;
  layer.feed_forward = feed_forward;
  LearnedPosition::Config positions;
  positions.max_length = shape.context;
  CausalLM::Config model = assemble(shape.vocab, shape.dim, shape.layers, norm, layer);
  model.decoder->positions = positions;
  return model;
}

}  // namespace meshloom::layers
