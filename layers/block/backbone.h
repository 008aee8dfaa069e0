// What encoders and decoders have in common: embedding, positions, a stack of layers and a final norm.
#pragma once

#include "layers/block/transformer.h"
#include "layers/embedding/embedding.h"
#include "layers/norm/norm.h"
#include "layers/position/position.h"

namespace meshloom::layers {

class Backbone : public Module {
 public:
  struct Dims {
    std::int64_t vocab = 0;
  };
  struct Config : Module::Config {
    using Dims = Backbone::Dims;
    Dims dims;

    Required<std::int64_t> dim;
    // none = the embedding that the model around it shares
    Child<TokenEmbedding::Config> embedding = Embedding::Config{};
    Child<EmbeddingPosition::Config> positions;
    Child<Layer::Config> stack = Stack::Config{};
    Child<Norm::Config> norm = RMSNorm::Config{};

    void fields(FieldVisitor& v) override;
  };

  Backbone(const Config& config, const Place& place);
  // tokens (B, S) i32 -> (B * S, dim). `ctx` is the context of this call itself; Tokens is put into it.
  Tensor features(Context& ctx, Tensor tokens);
  std::int64_t dim() const { return dim_; }
  SharedEmbedding embedding() const { return {embedding_, dim_}; }

 private:
  std::int64_t dim_;
  TokenEmbedding* embedding_;
  EmbeddingPosition* positions_ = nullptr;
  Layer* stack_;
  Norm* norm_;
};

}  // namespace meshloom::layers
