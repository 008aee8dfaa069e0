// Tokens to features: what encoders and decoders have in common.
#pragma once

#include "layers/block/transformer.h"
#include "layers/embedding/embedding.h"
#include "layers/norm/norm.h"
#include "layers/position/position.h"

namespace meshloom::layers {

class Trunk : public Module {
 public:
  struct Dims {
    std::int64_t vocab = 0;
  };
  struct Config : Module::Config {
    using Dims = Trunk::Dims;
    Dims dims;

    Required<std::int64_t> dim;
    Child<TokenEmbedding::Config> embedding =
        Embedding::Config{};  // none = the one a module around it shares
    Child<EmbeddingPosition::Config> positions;
    Child<Layer::Config> stack = Stack::Config{};
    Child<Norm::Config> norm = RMSNorm::Config{};

    void fields(FieldVisitor& v) override;
  };

  Trunk(const Config& config, const Place& place);
  // tokens (B, S) i32 -> (B * S, dim), in the context of this very call. Gives Tokens to everything below.
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
