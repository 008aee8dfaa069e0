// Embeddings: tokens to vectors, and, for a tied head, vectors to logits.
#pragma once

#include "layers/core/axes.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class TokenEmbedding : public Module {
 public:
  struct Dims {
    std::int64_t vocab = 0, dim = 0;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout =
        "A map from tokens to vectors and, for a tied head, from vectors to logits.";
    using Built = TokenEmbedding;
    using Dims = TokenEmbedding::Dims;
    Dims dims;
  };

  using Module::Module;
  // ids (B, S) i32 -> (B, S, dim)
  virtual Tensor forward(Context& ctx, Tensor ids) = 0;
  // x (N, dim) -> logits (N, vocab), the products with every token's vector: the tied output head.
  virtual Tensor attend(Context& ctx, Tensor x) = 0;

  Tensor operator()(Context& caller, Tensor ids) {
    Context ctx = caller.child(name());
    return forward(ctx, ids);
  }
};

// Provided by a decoder to the modules that it builds after its embedding, and by an encoder-decoder model to its
// decoder.
struct SharedEmbedding {
  TokenEmbedding* module;
  std::int64_t dim;
};

// One learned vector per token.
class Embedding : public TokenEmbedding {
 public:
  struct Config : ConfigOf<Config, TokenEmbedding::Config> {
    static constexpr std::string_view kName = "Embedding";
    static constexpr std::string_view kAbout = "One learned vector per token.";
    Child<Initializer> init = Normal{};

    void fields(FieldVisitor& v) override { v("init", init, {"How the vectors are initialised."}); }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Embedding(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor ids) override;
  Tensor attend(Context& ctx, Tensor x) override;

 private:
  const Parameter& weight_;  // (vocab, dim)
};

}  // namespace meshloom::layers
