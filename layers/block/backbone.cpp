#include "layers/block/backbone.h"

#include "kernels/layout/layout.h"

namespace meshloom::layers {

void Backbone::Config::fields(FieldVisitor& v) {
  v("dim", dim, {"Features of a token in the residual stream.", at_least(1)});
  v("embedding", embedding, {"The embedding of tokens; none: the one that the model around it shares."});
  v("positions", positions, {"How embeddings are given their positions; none: they are not."});
  v("stack", stack, {"The layers."});
  v("norm", norm, {"The normalisation after the last layer."});
}

Backbone::Backbone(const Config& config, const Place& place) : Module(place), dim_(config.dim) {
  const std::int64_t vocab = config.dims.vocab;
  if (dim_ <= 0) fail("dim must be positive", std::to_string(dim_));
  const SharedEmbedding* shared = inherited<SharedEmbedding>();
  if (!config.embedding && shared) {
    if (shared->dim != dim_)
      fail("dim must be that of the shared embedding, " + std::to_string(shared->dim), std::to_string(dim_));
    embedding_ = shared->module;
  } else {
    embedding_ = &child("embedding", config.embedding, {vocab, dim_});
    provide(embedding());
  }
  if (config.positions) positions_ = &child("positions", config.positions, Layer::same(dim_));
  stack_ = &child("stack", config.stack, Layer::same(dim_));
  norm_ = &child("norm", config.norm, Layer::same(dim_));
}

Tensor Backbone::features(Context& ctx, Tensor tokens) {
  const std::int64_t batch = tokens.dim(0), sequence = tokens.dim(1);
  ctx.put(Tokens{batch, sequence});
  Tensor x = (*embedding_)(ctx, tokens);
  if (positions_) x = (*positions_)(ctx, x);
  // From here on activations have one row per token, as matrix products want them, so that no layer has to reshape.
  x = kernels::reshape(x, {batch * sequence, dim_});
  x = (*stack_)(ctx, x);
  return (*norm_)(ctx, x);
}

}  // namespace meshloom::layers
