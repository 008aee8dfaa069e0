// Language models: models that predict the next token, which are the roots of module trees.
#pragma once

#include "layers/loss/loss.h"
#include "layers/models/decoder.h"

namespace meshloom::layers {

class LanguageModel : public Module {
 public:
  struct Config : Module::Config {
    static constexpr std::string_view kAbout =
        "A model that predicts the next token: the root of a tree of layers.";
    virtual std::int64_t vocabulary() const = 0;
    // The part of the model that reads a Source, nullptr if there is none, and the part that reads the tokens.
    virtual const layers::Config* source_part() const { return nullptr; }
    virtual const layers::Config& token_part() const { return *this; }
  };
  struct Loss {
    Tensor sum;    // (1): of the losses of valid targets, or of pairs of answers, with auxiliary losses
    Tensor count;  // (1): of valid targets, or of pairs
  };

  using Module::Module;
  // tokens (B, S) i32 -> logits (B * S, V)
  virtual Tensor logits(Context& ctx, Tensor tokens) = 0;
  // The logits (L, V) of the tokens with these indices, rows (L) i32, among all B * S.
  virtual Tensor logits(Context& ctx, Tensor tokens, Tensor rows) = 0;
  // tokens and targets are (B, S) i32; a negative target is ignored
  virtual Loss loss(Context& ctx, Tensor tokens, Tensor targets) = 0;
};

// Call information for models with a source_part(): the source of each row.
struct Source {
  Tensor tokens;  // (B, T) i32
  Tensor
      segments;  // (B, T) i32: the document of the row (Segments) that a token is the source of; 0 = padding
  Tensor positions;  // (B, T) i32: as Positions; an empty tensor if rows have one document
};

// A language model whose logits are those of a decoder. Every module output named "aux_loss", a scalar (1) per token,
// is added to the loss, times the number of valid targets. If the loss has a chunk_size(), head and loss are called for
// one chunk of the tokens after another, in the contexts slice0, slice1, ...
class DecoderModel : public LanguageModel {
 public:
  using LanguageModel::LanguageModel;
  Tensor logits(Context& ctx, Tensor tokens) override;
  Tensor logits(Context& ctx, Tensor tokens, Tensor rows) override;
  Loss loss(Context& ctx, Tensor tokens, Tensor targets) override;

 protected:
  void build(std::int64_t vocabulary, const Child<Decoder::Config>& decoder,
             const Child<TokenLoss::Config>& loss);
  // Puts the information into `ctx` that the decoder's call needs.
  virtual void prepare(Context& /*ctx*/) {}

 private:
  TokenLoss::Result chunked_loss(Context& ctx, Tensor tokens, Tensor targets);

  std::int64_t vocab_ = 0;
  Decoder* decoder_ = nullptr;
  TokenLoss* loss_ = nullptr;
};

}  // namespace meshloom::layers
