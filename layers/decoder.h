// Tokens to scores of the next token.
#pragma once

#include "layers/embedding.h"
#include "layers/head.h"
#include "layers/norm.h"
#include "layers/position.h"
#include "layers/transformer.h"

namespace meshloom::layers {

class Decoder : public Module {
 public:
  struct Dims {
    std::int64_t vocab = 0;
  };
  struct Config : ConfigOf<Config, Module::Config> {
    static constexpr std::string_view kName = "Decoder";
    using Built = Decoder;
    using Dims = Decoder::Dims;
    Dims dims;

    Required<std::int64_t> dim;
    Child<TokenEmbedding::Config> embedding = Embedding::Config{};
    Child<EmbeddingPosition::Config> positions;
    Child<Layer::Config> stack = Stack::Config{};
    Child<Norm::Config> norm = RMSNorm::Config{};
    Child<Layer::Config> head = TiedHead::Config{};

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Decoder(const Config& config, const Place& place);
  // tokens (B, S) i32 -> logits (B * S, vocab). Gives Tokens to everything below.
  Tensor forward(Context& ctx, Tensor tokens);
  Tensor operator()(Context& caller, Tensor tokens) {
    Context ctx = caller.child(name());
    return forward(ctx, tokens);
  }
  // The same in two steps: what the head takes, (B * S, dim), and the scores of some of its rows, in the caller's context.
  Tensor hidden(Context& caller, Tensor tokens) {
    Context ctx = caller.child(name());
    return features(ctx, tokens);
  }
  Tensor scores(Context& caller, Tensor rows) { return (*head_)(caller, rows); }

 private:
  Tensor features(Context& ctx, Tensor tokens);

  std::int64_t dim_;
  TokenEmbedding* embedding_;
  EmbeddingPosition* positions_ = nullptr;
  Layer *stack_, *head_;
  Norm* norm_;
};

}  // namespace meshloom::layers
