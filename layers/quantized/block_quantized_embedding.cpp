#include "layers/quantized/block_quantized_embedding.h"

namespace meshloom::layers {

std::unique_ptr<Module> BlockQuantizedEmbedding::Config::build(const Place& place) const {
  return std::make_unique<BlockQuantizedEmbedding>(*this, place);
}

std::unique_ptr<layers::Config> BlockQuantizedEmbedding::Config::merged_config() const {
  auto embedding = std::make_unique<Embedding::Config>();
  embedding->init = init;
  return embedding;
}

BlockQuantizedEmbedding::BlockQuantizedEmbedding(const Config& config, const Place& place)
    : TokenEmbedding(place),
      storage_(path(), config.blocks, config.dims.vocab, config.dims.dim),
      weight_(quantized_parameter("weight_blocks", storage_.type(), {axis::kVocab, axis::kEmbed}, config.init,
                                  storage_.storage("weight"))) {}

Tensor BlockQuantizedEmbedding::forward(Context& ctx, Tensor ids) {
  const Tensor rows = kernels::block_quantized_embedding(ctx.parameter(weight_), ids, storage_.options());
  return ctx.mark(rows, ctx.tag(), {axis::kBatch, axis::kSeq, axis::kEmbed});
}

Tensor BlockQuantizedEmbedding::attend(Context& ctx, Tensor x) {
  const Tensor logits = kernels::block_quantized_matmul(x, ctx.parameter(weight_), storage_.options());
  return ctx.mark(logits, ctx.tag(), {axis::kTokens, axis::kVocab});
}

void add_block_quantized_embedding_classes(ClassTable& classes) {
  classes.add<BlockQuantizedEmbedding::Config>();
}

}  // namespace meshloom::layers
