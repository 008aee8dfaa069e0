// What can stand at the root: a model that predicts the next token.
#pragma once

#include "layers/loss/loss.h"
#include "layers/models/decoder.h"

namespace meshloom::layers {

// The interface.
class LanguageModel : public Module {
 public:
  struct Config : Module::Config {
    static constexpr std::string_view kAbout =
        "What can stand at the root of a model: it predicts the next token.";
    virtual std::int64_t vocabulary() const = 0;
    // What reads a source besides the tokens (Source), and what reads the tokens; nullptr = no source.
    virtual const layers::Config* source_part() const { return nullptr; }
    virtual const layers::Config& token_part() const { return *this; }
  };
  struct Loss {
    Tensor sum, count;  // (1): over valid targets, auxiliary losses included; valid targets
  };

  using Module::Module;
  // tokens (B, S) i32 -> (B * S, V)
  virtual Tensor logits(Context& ctx, Tensor tokens) = 0;
  // targets (B, S) i32, negative = ignored
  virtual Loss loss(Context& ctx, Tensor tokens, Tensor targets) = 0;
};

// Call information for models that have a source_part(): what rows read before they write.
struct Source {
  Tensor tokens;     // (B, T) i32
  Tensor segments;   // (B, T) i32: which document of the row (Segments) a token is for; 0 = padding
  Tensor positions;  // (B, T) i32: as Positions; none where the tokens of the row have none either
};

// One whose scores are a decoder's. Adds every module output named "aux_loss", a scalar (1) per token, times
// the number of valid targets. Where the loss asks for the scores of some tokens at a time (TokenLoss::rows),
// head and loss are called as slice0, slice1, ...
class DecoderModel : public LanguageModel {
 public:
  using LanguageModel::LanguageModel;
  Tensor logits(Context& ctx, Tensor tokens) override;
  Loss loss(Context& ctx, Tensor tokens, Tensor targets) override;

 protected:
  void build(std::int64_t vocabulary, const Child<Decoder::Config>& decoder,
             const Child<TokenLoss::Config>& loss);
  // What the decoder's call needs, put into `ctx`.
  virtual void prepare(Context& /*ctx*/) {}

 private:
  TokenLoss::Result sliced(Context& ctx, Tensor tokens, Tensor targets);

  std::int64_t vocab_ = 0;
  Decoder* decoder_ = nullptr;
  TokenLoss* loss_ = nullptr;
};

}  // namespace meshloom::layers
