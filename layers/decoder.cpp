#include "layers/decoder.h"

#include "kernels/layout/layout.h"

namespace meshloom::layers {

void Decoder::Config::fields(FieldVisitor& v) {
  v("dim", dim);
  v("embedding", embedding);
  v("positions", positions);
  v("stack", stack);
  v("norm", norm);
  v("head", head);
}

std::unique_ptr<Module> Decoder::Config::build(const Place& place) const {
  return std::make_unique<Decoder>(*this, place);
}

Decoder::Decoder(const Config& config, const Place& place) : Module(place), dim_(config.dim) {
  const std::int64_t vocab = config.dims.vocab;
  if (dim_ <= 0) fail("dim is positive", std::to_string(dim_));
  embedding_ = &child("embedding", config.embedding, {vocab, dim_});
  provide(SharedEmbedding{embedding_});
  if (config.positions) positions_ = &child("positions", config.positions, Layer::same(dim_));
  stack_ = &child("stack", config.stack, Layer::same(dim_));
  norm_ = &child("norm", config.norm, Layer::same(dim_));
  head_ = &child("head", config.head, {dim_, vocab, axis::kEmbed, axis::kVocab});
}

Tensor Decoder::forward(Context& ctx, Tensor tokens) { return scores(ctx, features(ctx, tokens)); }

Tensor Decoder::features(Context& ctx, Tensor tokens) {
  const std::int64_t batch = tokens.dim(0), sequence = tokens.dim(1);
  ctx.put(Tokens{batch, sequence});
  Tensor x = (*embedding_)(ctx, tokens);
  if (positions_) x = (*positions_)(ctx, x);
  // From here to the logits one row per token: what matrix products want, so that no layer reshapes.
  x = kernels::reshape(x, {batch * sequence, dim_});
  x = (*stack_)(ctx, x);
  return (*norm_)(ctx, x);
}

void add_decoder_classes(ClassTable& classes) { classes.add<Decoder::Config>(); }

}  // namespace meshloom::layers
