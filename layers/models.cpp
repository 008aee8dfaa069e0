#include "layers/models.h"

namespace meshloom::layers {
namespace {

CausalLM::Config assemble(std::int64_t vocab, std::int64_t dim, std::int64_t layers, const Norm::Config& norm,
                          const TransformerLayer::Config& layer) {
  Stack::Config stack;
  stack.num_layers = layers;
  stack.layer = layer;
  Decoder::Config decoder;
  decoder.dim = dim;
  decoder.stack = stack;
  decoder.norm.reset(norm.clone());
  CausalLM::Config model;
  model.vocab_size = vocab;
  model.decoder = decoder;
  return model;
}

// Of projections into the residual stream.
Linear::Config residual_linear(bool bias) {
  Linear::Config linear;
  linear.bias = bias;
  linear.init = DepthScaledNormal{};
  return linear;
}

}  // namespace

CausalLM::Config llama_config(const LlamaShape& shape) {
  RMSNorm::Config norm;
  norm.eps = shape.eps;
  RotaryPosition::Config positions;
  positions.theta = shape.theta;
  Attention::Config attention;
  attention.num_heads = shape.heads;
  attention.num_kv_heads = shape.kv_heads;
  attention.head_dim = shape.head_dim;
  attention.o_proj = residual_linear(false);
  attention.positions = positions;
  FeedForward::Config feed_forward;
  feed_forward.hidden_dim = shape.ffn;
  feed_forward.down_proj = residual_linear(false);
  TransformerLayer::Config layer;
  layer.attention_norm = norm;
  layer.attention = attention;
  layer.feed_forward_norm = norm;
  layer.feed_forward = feed_forward;
  CausalLM::Config model = assemble(shape.vocab, shape.dim, shape.layers, norm, layer);
  if (!shape.tied) model.decoder->head = Linear::Config{};
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
