#include "layers/embedding/embedding.h"

#include "kernels/embedding/embedding.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::layers {

std::unique_ptr<Module> Embedding::Config::build(const Place& place) const {
  return std::make_unique<Embedding>(*this, place);
}

Embedding::Embedding(const Config& config, const Place& place)
    : TokenEmbedding(place),
      weight_(parameter("weight", {config.dims.vocab, config.dims.dim}, {axis::kVocab, axis::kEmbed},
                        config.init)) {}

Tensor Embedding::forward(Context& ctx, Tensor ids) {
  const Tensor rows = kernels::embedding(ctx.parameter(weight_), ids);
  return ctx.mark(rows, ctx.tag(), {axis::kBatch, axis::kSeq, axis::kEmbed});
}

Tensor Embedding::attend(Context& ctx, Tensor x) {
  kernels::MatmulOptions options;
  options.trans_b = true;
  const Tensor logits = kernels::matmul(x, ctx.parameter(weight_), options);
  return ctx.mark(logits, ctx.tag(), {axis::kTokens, axis::kVocab});
}

void add_embedding_classes(ClassTable& classes) { classes.add<Embedding::Config>(); }

}  // namespace meshloom::layers
