// A model that predicts the next token.
#pragma once

#include "layers/decoder.h"
#include "layers/loss.h"

namespace meshloom::layers {

// The interface of what can stand at the root.
class LanguageModel : public Module {
 public:
  struct Config : Module::Config {
    virtual std::int64_t vocabulary() const = 0;
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

// Adds every module output named "aux_loss", a scalar (1) per token, times the number of valid targets. Where the loss asks
// for the scores of some tokens at a time (TokenLoss::rows), head and loss are called as slice0, slice1, ...
class CausalLM : public LanguageModel {
 public:
  struct Config : ConfigOf<Config, LanguageModel::Config> {
    static constexpr std::string_view kName = "CausalLM";
    Required<std::int64_t> vocab_size;
    Child<Decoder::Config> decoder = Decoder::Config{};
    Child<TokenLoss::Config> loss = CrossEntropy::Config{};

    void fields(FieldVisitor& v) override {
      v("vocab_size", vocab_size);
      v("decoder", decoder);
      v("loss", loss);
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::int64_t vocabulary() const override { return vocab_size; }
  };

  CausalLM(const Config& config, const Place& place);
  Tensor logits(Context& ctx, Tensor tokens) override;
  Loss loss(Context& ctx, Tensor tokens, Tensor targets) override;

 private:
  TokenLoss::Result sliced(Context& ctx, Tensor tokens, Tensor targets);

  std::int64_t vocab_;
  Decoder* decoder_;
  TokenLoss* loss_;
};

}  // namespace meshloom::layers
