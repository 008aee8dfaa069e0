#include "layers/block/backbone.h"

#include "kernels/layout/layout.h"

namespace meshloom::layers {

void Trunk::Config::fields(FieldVisitor& v) {
  v("dim", dim, {"Features of one token between the layers.", at_least(1)});
  v("embedding", embedding, {"Makes vectors of tokens; none: the one that a model around it shares."});
  v("positions", positions, {"What tells the embeddings their positions; none: nothing does."});
  v("stack", stack, {"The layers."});
  v("norm", norm, {"The normalisation behind the last layer."});
}

Trunk::Trunk(const Config& config, const Place& place) : Module(place), dim_(config.dim) {
  const std::int64_t vocab = config.dims.vocab;
  if (dim_ <= 0) fail("dim is positive", std::to_string(dim_));
  const SharedEmbedding* shared = inherited<SharedEmbedding>();
  if (!config.embedding && shared) {
    if (shared->dim != dim_)
      fail("the dim is that of the shared embedding, " + std::to_string(shared->dim), std::to_string(dim_));
    embedding_ = shared->module;
  } else {
    embedding_ = &child("embedding", config.embedding, {vocab, dim_});
    provide(embedding());
  }
  if (config.positions) positions_ = &child("positions", config.positions, Layer::same(dim_));
  stack_ = &child("stack", config.stack, Layer::same(dim_));
  norm_ = &child("norm", config.norm, Layer::same(dim_));
}

Tensor Trunk::features(Context& ctx, Tensor tokens) {
  const std::int64_t batch = tokens.dim(0), sequence = tokens.dim(1);
  ctx.put(Tokens{batch, sequence});
  Tensor x = (*embedding_)(ctx, tokens);
  if (positions_) x = (*positions_)(ctx, x);
  // From here on one row per token: what matrix products want, so that no layer reshapes.
  x = kernels::reshape(x, {batch * sequence, dim_});
  x = (*stack_)(ctx, x);
  return (*norm_)(ctx, x);
}

}  // namespace meshloom::layers
